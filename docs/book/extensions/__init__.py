"""The Sphinx extensions of this book, one job each.

Where one builds upon what another has set up, its `setup` begins with `app.setup_extension`: so the
order of the list in conf.py means nothing.
"""
