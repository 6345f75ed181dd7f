"""Sizes of a whole graph: which belong together, and cases with smaller ones.

`trace.py` runs the graph on fake tensors whose sizes are symbols, `relations.py` solves what
operators asked of them, `solve.py` chooses numbers, `check.py` runs the graph with those on fake
tensors, `rebuild.py` makes the case. Nothing here asks an oracle.
"""
