"""Lower a functional graph to kernels of a loop IR and library calls, and fuse them.

The problem: eager runs each ATen operator as a kernel of its own, which reads its operands from
memory and writes its result there. Most operators do less arithmetic than that traffic costs. To
compute several in one pass over memory, a compiler must know the loops of each.

The idea is a loop IR that is data (`ir.py`): an operator becomes loops over index expressions, and
two operators with the same loops become one kernel. `lower.py` turns a graph into a `Program`:

    Buffer    memory of one tensor: type, sizes, strides (symbolic sizes are index expressions)
    Kernel    independent outer loops; within them sweeps, one after the other
    Sweep     statements (Store, Reduce, Scan) for each iteration of inner loops
    Value     an expression: a load, a number, a position, an operation of `vocabulary.py`
    Index     a position in a buffer: integers over loop variables, in one normal form (`sizes/`)

A worked example. `h = x.mm(w)`, then `(h - h.mean(1, keepdim=True)).relu()`, as lowered:

    library %mm = aten.mm(x, w)  # it has no lowering

    kernel mean.sum(i0 < 4) of [mean]:
      for r1 < 6:
        mean.sum = sum(mm[r1 + i0*6])
      mean.sum[i0] = mean.sum
    kernel mean(i0 < 4) of [mean]:
      mean[i0] = (mean.sum[i0] / float32(6))
    kernel sub(i0 < 4, i1 < 6) of [sub]:
      sub[i1 + i0*6] = (mm[i1 + i0*6] - mean[i0])
    kernel relu(i0 < 4, i1 < 6) of [relu]:
      relu[i1 + i0*6] = maximum(0.0, sub[i1 + i0*6])

A lowering (`operators/`) writes no loops: it combines arrays (`arrays.py`), functions from a
position to a value, so that a view costs nothing and `builder.py` makes the loops. Then `fuse.py`
applies `merge mean.sum -> mean`, `merge mean -> sub`, `merge sub -> relu`, each a numbered rewrite
that may be vetoed, and three buffers are removed:

    kernel relu(i0 < 4) of [mean, sub, relu]:
      for r0 < 6:
        mean.sum = sum(mm[r0 + i0*6])
      for r0 < 6:
        relu[r0 + i0*6] = maximum(0.0, (mm[r0 + i0*6] - (mean.sum / float32(6))))

Two loops fuse if their sizes are equal, or if one is a product of the others' (`align.py`): index
expressions over the new loops simplify back to equal ones. `memory.py` then lets buffers share
memory, and `interpret.py` runs any program in numpy: the reference for every code generator.

Library calls are permanent. A matrix product, a sort or an FFT in loops would be slower than the
library that eager calls, and would round in another order. So a node without a lowering is never an
error: `LibraryCall.why` records the reason, and the program runs the node as eager does.

Alternatives that lost. Inductor's IR is closures over an `ops` handler, each analysis a handler
that runs them again: compact, but a kernel cannot be printed, compared or interpreted, and
bisection needs all three. Its loops are flattened ranges whose sympy expressions are simplified by
ranges: sympy took most of the compile time here, so `sizes/` has its own normal form. A polyhedral
schedule finds more fusions, at the price of a solver that no bisection can veto step by step.
"""
