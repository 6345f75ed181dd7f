"""Record one observed compile step by step, and check each step against eager.

Problem. A compiled program returns a wrong number. The results alone do not show which of some
forty passes, the partition or a kernel computed it, and bisection needs one compile per question.

Idea: an *observed compile*. The compiler reports each event to an observer (`recorder.py`): the
graph on entry of a stage, before and after a pass, each kernel, and the values that kernels read
and wrote in the first call. A finished `CompileLog` is data; dumping, checking, comparing two logs
and bisecting are functions over it, and none of them runs inside the compile. `steps.py` turns the
events into `CompileStep`s, each from one graph to the next:

    captured -> pre_grad passes -> functionalize, decompositions -> joint passes
             -> partition -> forward and backward passes -> kernels

The order is that of the data, not of the events: the backward graph is compiled before the forward
kernel runs, and yet reads the values that this kernel saved.

Check (`check.py`). For each step, run the graph before it in eager, the graph after it in eager,
and the graph before it in float64. Two nodes of one name must agree. A kernel has no graph after
it: the values that it wrote are compared with its own nodes run on the values that it read, so that
the error of one kernel is not attributed to the next.

    before  joint/fold     mul = x * 1.0;  add = mul + y
    after   joint/fold     add = x + y                        add agrees: ok
    after   joint/merge    add = x + x                        add is 4.2, float64 3.1: wrong

`joint/merge` is the first wrong step, however many layers later the error reaches a result.

Error rule. `repro_templates/numbers/compare.py` decides: a value is wrong if its error against
float64 exceeds the tolerance of the numerics that the step declares, and ten times the error of
eager itself. So a step that reassociates sums may round differently, and an ill-conditioned value
does not blame the step that computes it. Float64 runs only where two values differ in a bit.

Comparable values (`comparable_values.py`). Some differences mean nothing, so a value counts only if

1. the program determines it. `torch.empty` does not; a value computed from it may, such as a buffer
   that is overwritten. The graph runs again with other numbers in the unwritten places: a value
   that changes is undetermined.
2. the program uses it: an output, a write or an effect depends on it.
3. no draw moved: a pass may reorder random operators, and all values behind them change.
4. for an inner value of a pass, dtype and shape agree: a pass may change the type of a temporary.

Dispatch renames all nodes, so a captured value is compared with the traced values that came from
its node, and each decomposed operator runs whole on operands of the traced graph
(`dispatch_graphs.py`). `meta_values.py` compares the shapes that the compiler assumed.

A program that raises is compared up to the raising node. If the exception is absent after a step,
that step is wrong.

History (`error_history.py`). Every step may stay within its tolerance while their sum does not. The
history lists for each value and step the error before and after, and the worst growth first.

Why not compare outputs only. An error may cancel, be masked by a ReLU, or lie below the tolerance
of a long sum; and a wrong output names no step. Why not trust a wrong step as the cause. A check is
an observation: two steps may each change a value that the failure does not depend on. It only
orders the suspects, and `bisect` proves the cause by a compile without it.
"""
