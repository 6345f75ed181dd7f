"""Split a joint graph into forward and backward: values to save, values to recompute.

Forward returns, behind its own outputs, what backward needs: the saved values. What is not saved is
computed again in backward. The files, bottom to top: `options`, `knapsack`, `min_cut` know no
graph; `roles` reads a node, `classify` a graph; `operators`, `costs` and `bans` judge what may and
should be computed again; `network` and `budget` choose what is saved; `extract` and `schedule`
build the two graphs; `support` says which graphs torch's own partitioner gets instead; `split` puts
it together.
"""
