"""What builds the book and keeps its two languages in step."""
