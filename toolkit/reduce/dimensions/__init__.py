"""The sizes of a whole graph: their relations, and cases with smaller sizes.

`size_trace` runs the graph on fake tensors whose sizes are symbols, `relations` solves the guards
of its operators and chooses numbers, `validity` runs the graph with them on fake tensors,
`resized_case` makes the case. No question is asked.
"""
