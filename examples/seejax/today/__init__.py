"""Old names of JAX, Flax and Optax in files: `python -m seejax.today old_script.py`.

Files are parsed, never run; none of the three libraries has to be installed. What has changed,
since when, and what to write instead stands in names.toml.
"""
