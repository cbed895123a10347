"""Where a script's time goes before it computes: `python -m seejax.report train.py`.

The script runs unchanged, in a process of its own, and `_recorder` notes each trace, lowering and
compilation of JAX with the lines of the script that led to it. However the script ends, the report
is written: a page for the browser, a text, and JSON.
"""

from seejax.report.summary import Advice, Program, Summary, summary

__all__ = ["Advice", "Program", "Summary", "summary"]
