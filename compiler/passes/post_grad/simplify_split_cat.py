"""Remove concatenations and splits that undo one another or do nothing.

Rules, `cat` and `split` along the same dimension:
    1. cat([x]) -> x
    2. cat(all parts of split(x), in order) -> x
    3. the part of cat([a, b, ...]) that is just the piece b -> b
    4. cat([cat([a, b]), c]) -> cat([a, b, c])
    5. the only part of split(x) -> x
    6. cat(slices or parts of x that tile it) -> x
    7. a part of cat([a, b, ...]) inside the piece b -> slice(b)
A part is a result of `slice` (step 1) or of `split`.
Preconditions: all but 4. and 5.: the replacement is unobservable (the old tensor does not leave the
graph, nothing writes to it) and has its type; the strides are the same, or no user notices them. 4.
the inner one has no other user, nothing writes to its pieces, and all are contiguous. 5. a view:
type and strides are the same. Sizes along the dimension must not be symbolic except in 1., 2. and
5., any size in 4. Exact.

Source: `torch/_inductor/fx_passes/split_cat.py` rewrites torch-level calls, with stacks and unbind;
this pass rewrites ATen, where fewer rules are needed, and checks strides and sharing.
"""

import operator
from functools import partial
from typing import cast

import torch
from torch.fx import Graph, Node

from ctk.compiler.fx.properties import base_of, escapes, mutated_bases
from ctk.compiler.fx.restride import is_noticed
from ctk.compiler.fx.types import is_dense, same_layout, same_sizes, tensor_of, value_of
from ctk.compiler.passes.post_grad.parts import (
    SPLITS,
    arguments,
    axis_of,
    may_stand_for,
    part_of,
)
from ctk.compiler.rewriting.base import Example, Pass
from ctk.compiler.rewriting.rewriter import Rewriter
from ctk.compiler.torch_compat.fake import fake_tensors as fake

aten = torch.ops.aten


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
            rule, source = _match_rule(node)
            if source is not None and may_stand_for(source, node, written):
                rewriter.replace(node, source, rule=rule)
                continue
            for inner in _inner(node):
                if not written.isdisjoint(map(base_of, _pieces(inner))):
                    continue  # they are read before that
                _flatten(rewriter, node, inner)
            if not _pieces(node):
                _narrow(rewriter, node, written)


def _only_part(node: Node) -> Node | None:
    """Rule 5."""
    split = node.args[0] if node.target is operator.getitem else None
    if not isinstance(split, Node) or split.target not in SPLITS:
        return None
    value, source = value_of(split), split.args[0]
    is_only = isinstance(value, (list, tuple)) and len(cast("list[object]", value)) == 1
    return source if is_only and isinstance(source, Node) else None


def _match_rule(node: Node) -> tuple[str, Node | None]:
    """Return the rule of 1 to 3 that holds at a node, and its replacement."""
    pieces = _pieces(node)
    if not pieces:
        return "a part of cat([a, b]), one piece -> it", _whole_piece(node)
    if len(pieces) == 1:
        return "cat([x]) -> x", pieces[0]
    source = _split_source(node, pieces)
    if source is not None:
        return "cat(split(x)) -> x", source
    axis = axis_of(tensor_of(node), arguments(node, 0)[0])
    return "cat(parts that tile x) -> x", _tile(pieces, axis)


def _whole_piece(node: Node) -> Node | None:
    """Rule 3."""
    found = _piece(node)
    tensor = tensor_of(found[0]) if found is not None else None
    if found is None or tensor is None:
        return None
    piece, axis, begin, end = found
    return piece if (begin, end) == (0, tensor.shape[axis]) else None


def _narrow(rewriter: Rewriter, node: Node, written: set[Node]) -> None:
    """Rule 7."""
    found = _piece(node)
    mine, others = tensor_of(node), tensor_of(found[0]) if found is not None else None
    if found is None or mine is None or others is None or mine.dtype != others.dtype:
        return
    piece, axis, begin, end = found
    if escapes(node) or base_of(piece) in written:
        return
    if not same_sizes(mine.stride(), others.stride()) and is_noticed({node: others.stride()}):
        return

    make = partial(rewriter.insert, aten.slice.Tensor, (piece, axis, begin, end), before=node)
    rewriter.replace_by("a part of cat([a, b]) inside b -> slice(b)", [node, piece], make)


def _pieces(node: Node) -> list[Node]:
    parts = node.args[0] if node.target is aten.cat.default and node.args else ()
    if not isinstance(parts, (list, tuple)):
        return []
    return [part for part in parts if isinstance(part, Node)]


def _split_source(node: Node, pieces: list[Node]) -> Node | None:
    """Rule 2."""
    if any(piece.target is not operator.getitem for piece in pieces):
        return None
    split, value = pieces[0].args[0], value_of(pieces[0].args[0])
    if not isinstance(split, Node) or split.target not in SPLITS:
        return None
    if not isinstance(value, (list, tuple)) or len(cast("list[object]", value)) != len(pieces):
        return None
    in_order = all(piece.args == (split, index) for index, piece in enumerate(pieces))
    axis, source = axis_of(tensor_of(node), arguments(node, 0)[0]), split.args[0]
    if not in_order or axis is None or not isinstance(source, Node):
        return None
    return source if axis == axis_of(tensor_of(source), arguments(split, None, 0)[1]) else None


def _tile(pieces: list[Node], axis: int | None) -> Node | None:
    """Rule 6."""
    parts = [part_of(piece) for piece in pieces]
    known = [part for part in parts if part is not None and part.axis == axis]
    if len(known) != len(pieces) or len({each.source for each in known}) != 1 or axis is None:
        return None
    source = known[0].source
    tensor = tensor_of(source)
    ends = [0, *(each.end for each in known)]
    is_tiled = [each.begin for each in known] == ends[:-1]
    return source if is_tiled and tensor is not None and tensor.shape[axis] == ends[-1] else None


def _piece(node: Node) -> tuple[Node, int, int, int] | None:
    """Rules 3 and 7: return the piece that holds a part of a concatenation, and its range there."""
    part = part_of(node)
    tensor, pieces = (tensor_of(part.source), _pieces(part.source)) if part else (None, [])
    if part is None or tensor is None or not pieces:
        return None
    if part.axis != axis_of(tensor, arguments(part.source, 0)[0]):
        return None
    begin = 0
    for piece in pieces:
        each = tensor_of(piece)
        if each is None or each.dim() != tensor.dim():  # an empty row is left out by `cat`
            return None
        size = each.shape[part.axis]
        if begin <= part.begin and part.end <= begin + size and part.begin < part.end:
            return piece, part.axis, part.begin - begin, part.end - begin
        begin += size
    return None


def _inner(node: Node) -> list[Node]:
    """Rule 4: return the inner `cat`s."""
    result = tensor_of(node)
    axis = axis_of(result, arguments(node, 0)[0]) if _pieces(node) else None
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
    is_same = axis_of(tensor_of(piece), arguments(piece, 0)[0]) == axis
    return is_whole and is_same and all(map(_is_dense, parts))


def _is_dense(node: Node) -> bool:
    """Return whether a tensor, and so the result of `cat`, is dense and row-major."""
    tensor = tensor_of(node)
    return tensor is not None and not any(map(fake.is_symbolic, tensor.shape)) and is_dense(tensor)


def _flatten(rewriter: Rewriter, node: Node, inner: Node) -> None:
    def edit(graph: Graph) -> None:
        pieces = cast("list[Node]", node.args[0])
        parts = [
            part for piece in pieces for part in (_pieces(piece) if piece is inner else [piece])
        ]
        node.args = (parts, *node.args[1:])
        graph.erase_node(inner)

    rewriter.rewrite("cat([cat([a, b]), c]) -> cat([a, b, c])", [node, inner], edit)


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
        (lambda x: aten.cat.default([x[:1], x[1:3], x[3:]]).sin(), (x,)),
        (lambda x, y: aten.cat.default([x, y, x])[5:6].sin(), (x, y)),
        (lambda x, y: aten.cat.default([x, y]).split_with_sizes([3, 1, 2])[2].sin(), (x, y)),
    ]


PASS = SimplifySplitCat()
