"""The persistent cache of whole graphs: keys, entries, store.

A compile takes seconds to minutes, and the next process needs the same one. The cache keeps it
under a *key*: named parts that cover everything on which the result depends (`key.py`).

    graph = 3f0c..      inputs = f32[8,16]      config.kernels = {...}      version.torch = 2.13.0

Two rules make that safe. *Refuse unknown code*: a user's pass that opens a file has no
identity (`usercode/identity.py`), so its compile is done each time, and `ctk cache why` shows the
reason. *Seal each entry*: it is one file with a checksum and with its whole key inside
(`store.py`), so a damaged, renamed or foreign entry is dropped and the graph compiled again.

A hit traces nothing: entries hold compiled graphs as data (`runtime/compiled_graph.py`), and the
guards on symbolic sizes under which they hold (`whole_graph.py`).

Why not keys by source text alone? Equal text with another global value is another pass. Why not
pickles, as Inductor's cache? Loading one runs code, and it cannot be checked before.
"""
