"""The book in other forms: Markdown, notebooks, one page to print, a folder to take away."""
