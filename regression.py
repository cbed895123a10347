import jax
import jax.numpy as jnp

def loss(params, x, y):
    h = jnp.tanh(x @ params["hidden"])
    size = jnp.sqrt(jnp.mean(h**2))
    error = h @ params["out"] - y
    return jnp.mean(error**2)

params = {"hidden": jnp.ones((4, 8)), "out": jnp.ones(8)}
