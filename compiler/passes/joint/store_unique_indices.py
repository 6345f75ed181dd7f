"""Replace accumulation at indices that are all different by a plain store.

Rules, where the numbers of `i` are known to be different and below the size of the dimension:
    1. index_add(x, dim, i, y) -> index_put(x, [i], x[i] + y)
    2. index_put(x, [i], y, accumulate=True) -> index_put(x, [i], x[i] + y)
    3. scatter_add(x, 0, i, y), of one dimension -> index_put(x, [i], x[i] + y)
Where `x` is zero everywhere, as in the backward of `z[i]` and of `z.index_select(0, i)`, `x[i]` is
not read: `0 + y` is stored, which makes 0.0 of -0.0 as accumulation does.

Known to be different: `randperm`, `arange`, the indices of a sorted vector, and operators that take
each element of them at most once (slices, parts, views, copies): nothing runs to find out, and no
guard is added. Preconditions: one tensor of indices, 64-bit, that nothing writes to; `alpha` is 1;
`x` is not complex; the result has the layout of `x`. Nothing is accumulated then, so no kernel
needs atomics (their order differs between runs), nor a sort. Exact.

A plain `x[i]` stays: eager's kernel checks bounds in `_unsafe_index` as well.

Source: `torch/_inductor/fx_passes/misc_patterns.py`, which knows `randperm` with `index_add` of the
first dimension, if the index is a slice of it; this pass traces the origin of the index, and serves
backward.
"""

import operator
from collections.abc import Iterator, Sequence
from typing import cast

import torch
from torch.fx import Node

from ctk.compiler.fx.operator_facts import PERMUTATIONS, RANGES, SORTS, TAKES_EACH_ONCE
from ctk.compiler.fx.properties import base_of, mutated_bases
from ctk.compiler.fx.types import same_layout, tensor_of, value_of
from ctk.compiler.patterns import Match, Op, Rule, RuleTable, Var, apply_rules
from ctk.compiler.rewriting.base import Example, Pass
from ctk.compiler.rewriting.rewriter import Rewriter
from ctk.compiler.torch_compat.fake import fake_tensors as fake
from ctk.compiler.torch_compat.fx import arguments

aten = torch.ops.aten
X, DIM, INDEX, VALUES = Var("x"), Var("dim"), Var("index"), Var("values")


def _place(match: Match) -> tuple[int, Node] | None:
    """Return the dimension and the indices of a match; None if there are several."""
    if "indices" in match.bound:
        return _only_index(match.bound["indices"])
    dim, index, x = match.bound["dim"], match.bound["index"], tensor_of(match.bound["x"])
    if not isinstance(dim, int) or not isinstance(index, Node) or x is None or not x.dim():
        return None
    return dim % x.dim(), index


def _may_store(match: Match) -> str | None:
    """Return why the numbers must be accumulated, or why a store would be another tensor."""
    place, x, values = _place(match), tensor_of(match.bound["x"]), tensor_of(match.bound["values"])
    if place is None or x is None or values is None:
        return "there is not just one tensor of indices, or a type is unknown"
    if x.is_complex():
        return "a sum of complex numbers makes NaN of infinities, accumulation does not"
    axis, index = place
    found = _unique_below(index)
    if found is None:
        return f"two numbers of {index} may be equal"
    bound, read_from = found
    if not _is_at_most(bound, x.shape[axis]):
        return f"{index} is below {bound}, the dimension has {x.shape[axis]} places"
    written = mutated_bases(match.root.graph)
    if any(base_of(node) in written for node in read_from):
        return f"something writes to {index}, or to a tensor that it was read from"
    if not same_layout(match.root, match.bound["x"]):
        return "the result has another layout than the tensor that it is added to"
    return _fits(index, x, values)


def _fits(index: Node, x: torch.Tensor, values: torch.Tensor) -> str | None:
    tensor = tensor_of(index)
    rank = x.dim() - 1 + (tensor.dim() if tensor is not None else 0)
    return "the values have more dimensions than their places" if values.dim() > rank else None


def _is_vector_index(match: Match) -> str | None:
    """As `_may_store`, of operators that take the indices of one dimension as a vector."""
    index = tensor_of(match.bound["index"])
    if index is None or index.dim() != 1:
        return "the index is not a vector"
    return _may_store(match)


def _is_vector(match: Match) -> str | None:
    """As `_may_store`, of a `scatter_add` whose three operands are vectors of one size."""
    x, values, index = (tensor_of(match.bound[each]) for each in ("x", "values", "index"))
    if x is None or values is None or index is None or x.dim() != 1:
        return "the operands are no vectors"
    if str(values.shape) != str(index.shape):
        return "there are more values than indices"
    return _is_vector_index(match)


def _store(rewriter: Rewriter, match: Match) -> Node:
    place, x, values = _place(match), match.node("x"), match.node("values")
    assert place is not None  # the guard has looked
    axis, index = place
    at, indices = match.root, [*[None] * axis, index]
    if _is_zero(x):
        total = _plus_zero(rewriter, values, at)
    else:
        old = rewriter.insert(aten.index.Tensor, (x, indices), before=at)
        total = rewriter.insert(aten.add.Tensor, (old, values), before=at)
    return rewriter.insert(aten.index_put.default, (x, indices, total), before=at)


def _plus_zero(rewriter: Rewriter, values: Node, before: Node) -> Node:
    """Return `0 + values`, which is the same but for -0.0, that only floats have."""
    tensor = tensor_of(values)
    if tensor is not None and not tensor.is_floating_point():
        return values
    return rewriter.insert(aten.add.Tensor, (values, 0), before=before)


def _is_zero(node: Node) -> bool:
    """Return whether a node makes a tensor of zeros, 0.0 and not -0.0, that stays one."""
    fills = (aten.full.default, aten.full_like.default)
    if node.target in fills:
        is_zero = len(node.args) > 1 and str(node.args[1]) in ("0", "0.0", "False")
    else:
        is_zero = node.target in (
            aten.zeros.default,
            aten.zeros_like.default,
            aten.new_zeros.default,
        )
    return is_zero and node not in mutated_bases(node.graph)


def _unique_below(index: Node) -> tuple[object, tuple[Node, ...]] | None:
    """Return a bound of a tensor's numbers if they are different, and not negative.

    The bound is exclusive, a number or a symbol. With it come the nodes that the numbers come from,
    which must not be written to. None if two numbers may be equal.
    """
    chain = tuple(_chain(index))
    if any(not _is_whole(node) for node in chain):
        return None
    bound = _exclusive_bound(chain[-1])
    return None if bound is None else (bound, chain)


def _chain(node: Node) -> Iterator[Node]:
    """Yield a node, and the nodes that its elements were taken from."""
    yield node
    while _takes_each_once(node):
        node = node.all_input_nodes[0]
        yield node


def _takes_each_once(node: Node) -> bool:
    source = node.args[0] if node.op == "call_function" and node.args else None
    if not isinstance(source, Node):
        return False
    if node.target is operator.getitem:
        return source.target in TAKES_EACH_ONCE
    return node.target in TAKES_EACH_ONCE


def _is_whole(node: Node) -> bool:
    """Return whether a node holds 64-bit integers or several tensors; smaller integers may wrap."""
    value = value_of(node)
    if isinstance(value, (list, tuple)):
        return True
    return isinstance(value, torch.Tensor) and value.dtype == torch.int64


def _exclusive_bound(node: Node) -> object:
    """Return the exclusive bound of a source of different numbers; None for another node."""
    if node.target in PERMUTATIONS and node.args:
        return value_of(node.args[0])
    if node.target in RANGES:
        return _end_of_range(node)
    source = node.args[0] if node.target is operator.getitem else None
    if isinstance(source, Node) and source.target in SORTS and node.args[1] == 1:
        tensor = tensor_of(source.args[0])
        return tensor.shape[0] if tensor is not None and tensor.dim() == 1 else None
    return None


def _end_of_range(node: Node) -> object:
    start, step = (_argument(node, name, default) for name, default in (("start", 0), ("step", 1)))
    if type(start) is not int or type(step) is not int or start < 0 or step < 1:
        return None
    return value_of(_argument(node, "end", None))


def _argument(node: Node, name: str, default: object) -> object:
    argument = arguments.argument_of(node.target, node.args, node.kwargs, name)
    return default if argument is None else argument


def _is_at_most(bound: object, size: object) -> bool:
    """Return whether a bound is known to be no larger than a size, without adding a guard."""
    if type(bound) is int and type(size) is int:
        return bound <= size
    return fake.is_symbolic(bound) and str(bound) == str(size)


def _only_index(indices: object) -> tuple[int, Node] | None:
    """Return the dimension and the tensor of the only index in a list: `x[:, index]`."""
    given = cast("Sequence[object]", indices if isinstance(indices, (list, tuple)) else ())
    found = [(axis, each) for axis, each in enumerate(given) if isinstance(each, Node)]
    return found[0] if len(found) == 1 else None


RULES = RuleTable(
    Rule(
        "index_add(x, dim, i, y) -> index_put(x, [i], x[i] + y)",
        Op(aten.index_add.default, (X, DIM, INDEX, VALUES)),
        _store,
        _is_vector_index,
    ),
    Rule(
        "index_put(x, [i], y, accumulate=True) -> index_put(x, [i], x[i] + y)",
        Op(aten.index_put.default, (X, Var("indices"), VALUES, True)),
        _store,
        _may_store,
    ),
    Rule(
        "scatter_add(x, 0, i, y) -> index_put(x, [i], x[i] + y)",
        Op(aten.scatter_add.default, (X, DIM, INDEX, VALUES)),
        _store,
        _is_vector,
    ),
)


class StoreUniqueIndices(Pass):
    """Replace accumulation at indices that are all different by a plain store."""

    name = "store_unique_indices"

    def run(self, rewriter: Rewriter) -> None:
        apply_rules(rewriter, RULES)


def examples() -> list[Example]:
    """Return programs that the pass changes."""
    x, y, v = torch.ones(5, 3), torch.ones(2, 3), torch.ones(4)
    order, zeros = aten.randperm.default, aten.full.default
    return [
        (lambda x, y: aten.index_add.default(x, 0, order(5)[:2], y), (x, y)),
        (lambda x, y: aten.index_add.default(x, -1, aten.arange.default(2), y[:, :2]), (x, x)),
        (lambda x, y: aten.index_put.default(x, [order(5)[3:]], y, True), (x, y)),
        (lambda x, y: aten.index_put.default(zeros([5, 3], 0.0), [order(5)[3:]], y, True), (x, y)),
        (lambda x, y: aten.index_put.default(x, [None, order(3)], y[:1], True), (x, y)),
        (lambda v, w: aten.scatter_add.default(v, 0, v.sort()[1], w.sin()), (v, v)),
        (lambda v, w: aten.scatter_add.default(v, 0, order(4).split(2)[1], w[:2]), (v, v)),
    ]


PASS = StoreUniqueIndices()
