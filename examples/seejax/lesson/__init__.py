"""What the cells of the book's pages import beside JAX: one module for each need."""
