"""Split a joint graph into forward and backward: values to save, values to recompute.

The problem. AOTAutograd traces a program and its gradient into one *joint graph*: inputs are the
primals (the program's inputs) and the tangents (the gradients of its outputs), outputs are the
program's results and the gradients of the primals. Training runs it in two calls, forward first,
so the graph must be split, and backward needs values of forward. Each of these can be *saved*
(forward returns it, and it occupies memory between the calls) or *recomputed* (backward runs its
operators again, which takes time).

    primals_1: bfloat16[1024, 1024]   2 MiB      primals_2: a parameter, in memory anyway: 0
    a  = to_float(primals_1)          4 MiB
    s  = sin(a)                       4 MiB
    y  = mm(s, primals_2)             output of forward
    gs = mm(tangents_1, primals_2.T)  backward
    gx = mul(gs, cos(a))              backward, reads a
    gw = mm(s.T, tangents_1)          backward, reads s

The idea: a minimum cut. Backward can start from any set of values that separates its operators from
the inputs of forward. Such a set is a cut of a flow network in which the capacity of a value is the
bytes of saving it (`network.py`), so the cheapest set is a minimum cut, which a maximum flow finds
in polynomial time (`min_cut.py`). Here:

    save a and s        8 MiB    recompute nothing: the plain partition (algorithm `default`)
    save a              4 MiB    recompute s, which is pointwise
    save primals_1      2 MiB    recompute a and s: the minimum cut

*Bans* keep the cut sensible (`bans.py`). A banned node has an infinite edge from the source: it is
saved or lies behind a saved value, and is never recomputed. Hard bans keep the program correct:
inputs, effects, values that checkpointing wants saved. Soft bans keep it fast: products, chains of
operators that do not fuse, reductions. Random operators are recomputed from the saved state of
their generator, which costs the bytes of that state (`recipes.py`).

A *memory budget* b chooses between the two extremes. With hard bans only, a cut of `low` bytes is
the least that any partition saves; with all bans, one of `high` bytes is best for run time. A
budget allows low + b * (high - low) bytes: with low = 2 MiB and high = 8 MiB a budget of 0.5 allows
5 MiB. To fit, soft bans are lifted. Which of them stay is a knapsack: keep the bans of the nodes
that take longest to recompute, within the bytes that the budget leaves (`budget.py`,
`knapsack.py`).

Why not otherwise:
1. Greedy rules ("recompute everything pointwise") save more bytes than a cut of the same graph,
   because a value that several paths share is cheap to save and dear to recompute. The cut is
   exact: `tests/unit/partition` compares it with all subsets of small graphs.
2. torch's min-cut partitioner, which Inductor uses, weighs bytes by the distance from backward, so
   that its cut is not minimal in any unit, treats its budget as a hint, and saves an input that
   forward overwrites later as it is (a wrong gradient). It still splits the graphs that
   `split.find_unsupported` names, and every graph with `algorithm="torch"`.
3. Integer programming over nodes with times and bytes has no better bound here: times are
   estimates, so exactness there buys nothing, and it takes exponential time at worst.

From bottom to top: `options`, `knapsack` and `min_cut` know no graph; `roles` reads a node,
`classify` a graph; `costs` and `bans` rate recomputation, `fx/operator_facts.py` has the operators;
`network` and `budget` choose the saved values; `extract` builds the two graphs; `split` is the
entry point, with AOTAutograd's calling convention.
"""
