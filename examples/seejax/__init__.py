"""What the pages of See JAX build, and how they show it."""
