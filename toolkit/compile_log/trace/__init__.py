"""The trace: one observed compile as one bounded document, `trace.json`, for people to look at.

A compile log is live: its graphs are FX graphs, its values tensors. A trace is text. It holds the
steps of the compile in the order of the data, with the graph before and after each, the finding of
the check, the errors of the values that the step changed, and the source of each kernel. A report
reads it, and compiles nothing.

A pass changes a few nodes, so a graph is stored as the edits of an earlier one:

    graph 0    base null   edits: (at 0, removed 0, 900 nodes)
    graph 1    base 0      edits: (at 17, removed 2, 1 node), (at 40, removed 0, 3 nodes)

`at` counts in the nodes of the base. Edits are in order and do not overlap, and a base stands
before its graphs, so that `nodes_of` rebuilds a graph in one walk.

`document.py` declares the format, `writing.py` makes a trace of a log, `reading.py` reads one from
a file that may be hostile. The trace is bounded in nodes, bytes and steps. Each cut is a sentence
in `Trace.cut`, for the reader of the report.
"""
