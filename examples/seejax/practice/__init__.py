"""Exercises of the book, to be done in an editor: `python -m seejax.practice tour`.

| module | its one idea |
|---|---|
| `exercises` | what a page has, and the file that a reader gets |
| `attempt` | what a fresh interpreter does with the reader's file |
| `hints` | the next thing to know, from the solution and the attempt |
| `folder` | the reader's folder: what lies in it, and what passes |
| `words` | what the command says, in both languages |
| `command` | the command line, the following of saves, and the keys |
"""
