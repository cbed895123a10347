import jax
import jax.numpy as jnp

def init(key, inputs=4, hidden=8):
    return {
        "hidden": jax.random.normal(key, (inputs, hidden)),
        "out": jax.random.normal(key, (hidden,)),
    }

if __name__ == "__main__":
    raise SystemExit(3)

def pair():
    return init, (KEY,)

KEY = jax.random.key(0)
