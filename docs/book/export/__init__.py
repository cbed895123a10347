"""The book in other forms: Markdown, notebooks, a PDF, a folder to take away."""
