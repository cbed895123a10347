"""The cases: what is raced, in which forms, and the rows that follow.

measure(folder, starts) -> case: a dict with title, environments, rows, and what `race.race` adds;
run.py's CASES lists them. All rows of a case come from one run, in turns: a ratio of two runs would
compare two states of the machine. So a case is what can be measured anew, never a row of it.

A row is of one kind: "headline", a peer at its best or a limit, with its bound; "as it comes", a
peer as most people would write it; "rule", what one rule of fairness changes.
"""
