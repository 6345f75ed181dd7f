"""Remove concatenations and splits that undo one another or do nothing.

Rules, `cat` and `split` along the same dimension:
    1. cat([x]) -> x
    2. cat(all parts of split(x), in order) -> x
    3. slice(cat([a, b, ...])), just the piece b -> b
    4. cat([cat([a, b]), c]) -> cat([a, b, c])
    5. the only part of split(x) -> x
Preconditions: 1.-3. nobody can tell the old tensor from the new one (it does not leave the graph,
nothing writes to it) and it has its type; the strides are the same, or nobody notices them. 4. the
inner one has no other user, and all are contiguous. 5. a view: type and strides are the same.
Symbolic sizes along the dimension are left alone in 3., any in 4. Exact.

Source: `torch/_inductor/fx_passes/split_cat.py`. That one rewrites torch-level calls, with stacks
and unbind; this one sees ATen, where a few rules are left, and checks strides and sharing.
"""

import operator
from typing import cast

import torch
from torch.fx import Graph, Node

from ctk.compiler.fx.properties import base_of, escapes, mutated_bases
from ctk.compiler.fx.restride import is_noticed
from ctk.compiler.fx.types import dense_strides, same_layout, same_type, tensor_of, value_of
from ctk.compiler.rewriting.base import Example, Pass
from ctk.compiler.rewriting.rewriter import Rewriter
from ctk.compiler.torch_compat import fake

aten = torch.ops.aten
_SPLITS = frozenset(
    {
        aten.split.Tensor,
        aten.split_with_sizes.default,
        aten.unsafe_split.Tensor,
        aten.unsafe_split_with_sizes.default,
    }
)


class SimplifySplitCat(Pass):
    """Remove concatenations and splits that undo one another or do nothing."""

    name = "simplify_split_cat"

    def run(self, rewriter: Rewriter) -> None:
        written = mutated_bases(rewriter.graph)
        for node in rewriter.nodes():
            only = _only_part(node)
            if only is not None and same_layout(node, only):
                rewriter.replace(node, only, rule="the only part of split(x) -> x")
                continue
            rule, source = _found(node)
            if source is not None and _may_replace(node, source, written):
                rewriter.replace(node, source, rule=rule)
                continue
            for inner in _inner(node):
                _flatten(rewriter, node, inner)


def _only_part(node: Node) -> Node | None:
    """Rule 5."""
    split = node.args[0] if node.target is operator.getitem else None
    if not isinstance(split, Node) or split.target not in _SPLITS:
        return None
    value, source = value_of(split), split.args[0]
    is_only = isinstance(value, (list, tuple)) and len(cast("list[object]", value)) == 1
    return source if is_only and isinstance(source, Node) else None


def _found(node: Node) -> tuple[str, Node | None]:
    """Return which of the rules 1 to 3 holds at a node, and what it puts there."""
    if node.target is aten.slice.Tensor and node.args:
        return "slice(cat([a, b])), one piece -> it", _piece(node)
    pieces = _pieces(node)
    if len(pieces) == 1:
        return "cat([x]) -> x", pieces[0]
    return "cat(split(x)) -> x", _split_source(node, pieces) if pieces else None


def _pieces(node: Node) -> list[Node]:
    parts = node.args[0] if node.target is aten.cat.default and node.args else ()
    if not isinstance(parts, (list, tuple)):
        return []
    return [each for each in parts if isinstance(each, Node)]


def _axis(tensor: torch.Tensor | None, given: object) -> int | None:
    """Return a dimension that a call names, counted from 0."""
    if tensor is None or not isinstance(given, int) or not tensor.dim():
        return None
    return given % tensor.dim()


def _arguments(node: Node, *defaults: object) -> tuple[object, ...]:
    """Return the arguments behind the first, with defaults for those that are missing.

    Where one is given by keyword, all are None, which no rule takes.
    """
    if node.kwargs:
        return (None,) * len(defaults)
    return (*node.args[1:], *defaults[len(node.args) - 1 :])


def _split_source(node: Node, pieces: list[Node]) -> Node | None:
    """Rule 2."""
    if any(piece.target is not operator.getitem for piece in pieces):
        return None
    split, value = pieces[0].args[0], value_of(pieces[0].args[0])
    if not isinstance(split, Node) or split.target not in _SPLITS:
        return None
    if not isinstance(value, (list, tuple)) or len(cast("list[object]", value)) != len(pieces):
        return None
    in_order = all(piece.args == (split, index) for index, piece in enumerate(pieces))
    axis, source = _axis(tensor_of(node), _arguments(node, 0)[0]), split.args[0]
    if not in_order or axis is None or not isinstance(source, Node):
        return None
    return source if axis == _axis(tensor_of(source), _arguments(split, None, 0)[1]) else None


def _piece(node: Node) -> Node | None:
    """Rule 3."""
    cat = node.args[0]
    given, start, end, step = _arguments(node, 0, None, None, 1)
    start = 0 if start is None else start
    if not isinstance(cat, Node) or step != 1 or not isinstance(start, int):
        return None
    tensor, pieces = tensor_of(cat), _pieces(cat)
    axis = _axis(tensor, given)
    if tensor is None or axis is None or axis != _axis(tensor, _arguments(cat, 0)[0]):
        return None
    total = tensor.shape[axis]
    if fake.is_symbolic(total):
        return None
    begin = 0
    for piece in pieces:
        part = tensor_of(piece)
        if part is None or part.dim() != tensor.dim():  # an empty row is left out by `cat`
            return None
        begin, last = begin + part.shape[axis], begin
        if last == start and begin == (total if end is None else min(cast("int", end), total)):
            return piece
    return None


def _inner(node: Node) -> list[Node]:
    """Rule 4: return the inner `cat`s."""
    result = tensor_of(node)
    axis = _axis(result, _arguments(node, 0)[0]) if _pieces(node) else None
    if result is None or axis is None or not _is_dense(node):
        return []
    found = dict.fromkeys(piece for piece in _pieces(node) if len(piece.users) == 1)
    return [piece for piece in found if _is_part_of(piece, axis, result.dim())]


def _is_part_of(piece: Node, axis: int, rank: int) -> bool:
    parts = _pieces(piece)
    types = [tensor_of(part) for part in parts]
    if not parts or any(each is None or each.dim() != rank for each in types):
        return False
    is_whole = len(parts) == len(cast("list[object]", piece.args[0]))
    is_same = _axis(tensor_of(piece), _arguments(piece, 0)[0]) == axis
    return is_whole and is_same and all(map(_is_dense, parts))


def _is_dense(node: Node) -> bool:
    """Return whether a tensor is dense with its last dimension innermost, so that `cat` is too."""
    tensor = tensor_of(node)
    if tensor is None or any(map(fake.is_symbolic, tensor.shape)):
        return False
    return list(tensor.stride()) == dense_strides(tensor.shape)


def _flatten(rewriter: Rewriter, node: Node, inner: Node) -> None:
    def edit(graph: Graph) -> None:
        pieces = cast("list[Node]", node.args[0])
        parts = [part for each in pieces for part in (_pieces(each) if each is inner else [each])]
        node.args = (parts, *node.args[1:])
        graph.erase_node(inner)

    rewriter.rewrite("cat([cat([a, b]), c]) -> cat([a, b, c])", [node, inner], edit)


def _may_replace(node: Node, source: Node, written: set[Node]) -> bool:
    """Return whether nobody can tell the operand of a concatenation from its result."""
    mine, others = tensor_of(node), tensor_of(source)
    if mine is None or others is None or not same_type(mine, others):
        return False
    if escapes(node) or base_of(source) in written:
        return False
    return same_layout(node, source) or not is_noticed({node: others.stride()})


def examples() -> list[Example]:
    """Return programs that the pass changes, one for each rule."""
    x, y = torch.ones(4, 3), torch.ones(2, 3)
    return [
        (lambda x: aten.cat.default([x]).sin(), (x,)),
        (lambda x: aten.cat.default(x.sin().split(1, 1), 1).sin(), (x,)),
        (lambda x: aten.cat.default(x.split_with_sizes([1, 3]), -2).sin(), (x,)),
        (lambda x, y: aten.slice.Tensor(aten.cat.default([x, y, x]), 0, 4, 6).sin(), (x, y)),
        (lambda x, y: aten.cat.default([aten.cat.default([x, y]), y.sin()]), (x, y)),
        (lambda x, y: aten.cat.default([x.t(), aten.cat.default([y.t(), y.t()], 1)], -1), (x, y)),
        (lambda x: x.split(4)[0].sin(), (x,)),
    ]


PASS = SimplifySplitCat()
