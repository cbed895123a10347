"""Old names of JAX, Flax and Optax in files: `python -m seejax.today old_script.py`.

Files are parsed, never run; none of the three libraries has to be installed. What has changed,
since when, and what to write instead stands in names.toml.

Each of these knows what the one before it knows: `syntax` what stands where, `bindings` what names
stand for, `conditions` whether a name may be missing, `renaming` how it is written anew, `uses`
which old names there are. `files` reads and writes scripts and notebooks, `command` is for users.
"""
