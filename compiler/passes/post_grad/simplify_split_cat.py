"""Remove concatenations, stacks and parts of them that undo one another or do nothing.

Rules; `join` is `cat` or `stack`, a piece is any chain of views of a tensor, as `split`, `unbind`,
`slice`, `select`, `view` and `permute` make them (`pieces.py`):
    1. cat([x]) -> x
    2. join(pieces of x in a row, ...) -> join(one piece of x, ...)      without the join if none is
       left: cat(split(x)) -> x, stack(unbind(x, 1), 2) -> permute(x)
    3. a piece of join([a, b, ...]) inside b -> a piece of b
    4. cat([cat([a, b]), c]) -> cat([a, b, c])
    5. the only part of split(x) -> x
    6. f(cat([a, b, ...])) -> cat([f(a), f(b), ...]), for a pointwise `f` of one tensor, also with
       views in between
Preconditions: 1. to 3. a view is unobservable (the old tensor does not leave the graph, nothing
writes to it) and has the old type; the strides are the same, or no user notices them. 2. is a copy
where a view would be observable, or is impossible; an incomplete one must leave the layout of the
result. 3. is a view; the result may leave the graph if `b` is a value that does not otherwise. 4.
the inner one has no other user, nothing writes to its pieces, and all are contiguous. 6. nothing
else uses the concatenation, it has at most 4 different parts, and the layout of the result stays.
Pieces in a row adjoin, or are equal parts at equal distances; along these, sizes are numbers, in 4.
all are. Exact.

Source: `torch/_inductor/fx_passes/split_cat.py` (`SplitCatSimplifier`, `merge_getitem_cat`,
`mutate_cat_node`, `split_cat_to_slices`, `unbind_cat_to_view`, `split_stack_to_cats`,
`unbind_stack_to_slices`, `move_reshape_out_of_split_stack`, `merge_select_cat_aten`...) and
`sink_cat_after_pointwise` in `pre_grad.py`: a rewrite for each spelling of torch-level calls, of
which most need an option. This pass reads positions off ATen, and checks strides and sharing.
"""

import operator
from bisect import bisect_right
from collections.abc import Callable, Container, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import accumulate, takewhile
from typing import Any, cast

import torch
from torch import Tensor
from torch.fx import Graph, Node

from ctk.compiler.fx.properties import base_of, escapes, is_pure, mutated_bases
from ctk.compiler.fx.restride import is_noticed
from ctk.compiler.fx.types import is_dense, same_layout, same_type, tensor_of, value_of
from ctk.compiler.passes.post_grad.parts import SPLITS, arguments, axis_of
from ctk.compiler.passes.post_grad.pieces import (
    Piece,
    Run,
    View,
    compute,
    extend,
    insert_dim,
    piece_of,
    range_of,
    relative_to,
    source_of,
    view_of,
    whole,
)
from ctk.compiler.rewriting.base import Example, Pass
from ctk.compiler.rewriting.rewriter import Rewriter
from ctk.compiler.torch_compat.fake import fake_tensors as fake

aten = torch.ops.aten

MOST_SUNK = 4
"""Functions stay behind more parts: a C kernel of 16 loops is a third slower than one of one."""

_JOINS = (aten.cat.default, aten.stack.default)
_RESHAPES = (
    aten.view.default,
    aten._unsafe_view.default,
    aten.permute.default,
    aten.transpose.int,
    aten.t.default,
    aten.unsqueeze.default,
    aten.squeeze.dim,
    aten.squeeze.dims,
)


class SimplifySplitCat(Pass):
    """Remove concatenations, stacks and parts of them that undo one another or do nothing."""

    name = "simplify_split_cat"

    def run(self, rewriter: Rewriter) -> None:
        simplifier = _Simplifier(rewriter, mutated_bases(rewriter.graph))
        while simplifier.sweep():
            pass  # one rewrite may enable another one


@dataclass(frozen=True, slots=True)
class _Join:
    """A `cat` or `stack` of tensors of one rank along a dimension.

    Attributes:
        ends: The end of each part along it, up to the first part whose size is a symbol.
    """

    node: Node
    parts: list[Node]
    axis: int
    ends: list[int]

    @property
    def is_stack(self) -> bool:
        return self.node.target is aten.stack.default

    @property
    def name(self) -> str:
        return "stack" if self.is_stack else "cat"

    def placed(self, piece: Piece) -> Piece:
        """Return a piece with the dimensions of the result."""
        return insert_dim(piece, self.axis) if self.is_stack else piece


@dataclass(frozen=True, slots=True)
class _Simplifier:
    """Applies the rules, and asks for no rewrite twice that was refused."""

    rewriter: Rewriter
    written: set[Node]
    refused: set[Node] = field(default_factory=set[Node])
    joins: dict[Node, tuple[object, _Join | None]] = field(
        default_factory=dict[Node, "tuple[object, _Join | None]"]
    )

    def join_of(self, node: Node) -> _Join | None:
        """Return `_join_of` a node, which is read again only if its arguments have changed."""
        if node not in self.joins or self.joins[node][0] is not node.args:
            self.joins[node] = node.args, _join_of(node)
        return self.joins[node][1]

    def sweep(self) -> bool:
        """Return whether a rewrite was made anywhere."""
        made = [node for node in self.rewriter.nodes() if self.simplify(node)]
        return bool(made)

    def simplify(self, node: Node) -> bool:
        """Return whether a rewrite was made at a node."""
        if node.op != "call_function" or node in self.refused:
            return False
        only = _only_part(node)
        if only is not None and same_layout(node, only):
            return self.replace("the only part of split(x) -> x", [node, only], lambda: only)
        join = self.join_of(node)
        if join is not None:
            return self.shorten(join) or self.flatten(join)
        return self.take_from_part(node) or self.sink(node)

    def replace(
        self, rule: str, nodes: list[Node], make: Callable[[], Node], erase: Sequence[Node] = ()
    ) -> bool:
        """Make a rewrite, or remember that it must not be made."""
        is_made = self.rewriter.replace_by(rule, nodes, make, erase=erase)
        self.refused.update([] if is_made else nodes[:1])
        return is_made

    def shorten(self, join: _Join) -> bool:
        """Rules 1 and 2."""
        node, nodes = join.node, [join.node, *dict.fromkeys(join.parts)]
        runs = _runs(join, self.written)
        if len(runs) == 1:
            view = self.stand_in(node, view_of(runs[0].piece))
            given = "[x]" if len(join.parts) == 1 else "pieces of x"
            rule = f"{join.name}({given}) -> {'a piece of x' if view and view.calls else 'x'}"
            make = partial(view.insert, self.rewriter, node) if view is not None else None
            return make is not None and self.replace(rule, nodes, make)
        views = self.views(join, runs)
        if len(views) == len(join.parts) or None in views:
            return False
        known = [view for view in views if view is not None]
        args = ([view.value for view in known], join.axis)
        if not same_layout(node, compute(aten.cat.default, args)):
            return False

        def insert() -> Node:
            made = [view.insert(self.rewriter, node) for view in known]
            return self.rewriter.insert(aten.cat.default, (made, join.axis), before=node)

        return self.replace(
            f"{join.name}([pieces of x, y]) -> cat([a piece of x, y])", nodes, insert
        )

    def views(self, join: _Join, runs: Sequence[Run]) -> list[View | None]:
        """Return the views of the runs of a join; each part by itself for one without a view."""
        views: list[View | None] = []
        parts = iter(join.parts)
        for run in runs:
            own = [next(parts) for _ in range(run.count)]
            is_written = base_of(run.piece.base) in self.written
            view = None if run.count == 1 or is_written else view_of(run.piece)
            views += [view_of(join.placed(whole(part))) for part in own] if view is None else [view]
        return views

    def stand_in(self, node: Node, view: View | None) -> View | None:
        """Return a view that may replace a new tensor: a copy, where a view could be observed."""
        if view is None or base_of(view.base) in self.written:
            return None
        is_hidden = view.is_copy or not escapes(node)
        if is_hidden and _fits(node, view.value):
            return view
        copy = view.copy()
        return copy if copy is not None and same_layout(node, copy.value) else None

    def take_from_part(self, node: Node) -> bool:
        """Rule 3."""
        found = self.piece_of_part(node)
        if found is None:
            return False
        part, piece = found
        view, origin = view_of(piece), base_of(part)
        if view is None or view.is_copy or origin in self.written or not _fits(node, view.value):
            return False
        if escapes(node) and (origin.op != "call_function" or escapes(origin)):
            return False
        make = partial(view.insert, self.rewriter, node)
        return self.replace("a piece of join([a, b]) in b -> a piece of b", [node, part], make)

    def piece_of_part(self, node: Node) -> tuple[Node, Piece] | None:
        """Rule 3: return the part that holds a piece of a join, and the piece of that part."""
        piece = piece_of(node, self.written) if source_of(node) is not None else None
        if piece is None or piece.base is node or piece.base in self.written:
            return None
        join = self.join_of(piece.base)
        place = range_of(piece, join.axis) if join is not None else None
        if join is None or place is None:
            return None
        index = bisect_right(join.ends, place[0])
        if index == len(join.ends) or place[1] > join.ends[index]:
            return None
        begin = join.ends[index - 1] if index else 0
        part = join.parts[index]
        return part, relative_to(part, piece, join.axis, begin, is_stack=join.is_stack)

    def flatten(self, join: _Join) -> bool:
        """Rule 4."""
        node = join.node
        inner = next((part for part in join.parts if self.is_inner(join, part)), None)
        if inner is None:
            return False

        def edit(graph: Graph) -> None:
            more = cast("list[Node]", inner.args[0])
            parts = [p for part in join.parts for p in (more if part is inner else [part])]
            node.args = (parts, *node.args[1:])
            graph.erase_node(inner)

        is_made = self.rewriter.rewrite(
            "cat([cat([a, b]), c]) -> cat([a, b, c])", [node, inner], edit
        )
        self.refused.update([] if is_made else [node])
        return is_made

    def is_inner(self, outer: _Join, part: Node) -> bool:
        """Return whether a part of a `cat` is one along the same dimension, for it alone."""
        inner = self.join_of(part)
        if inner is None or outer.is_stack or inner.is_stack or inner.axis != outer.axis:
            return False
        if len(part.users) != 1 or not self.written.isdisjoint(map(base_of, inner.parts)):
            return False
        return all(map(_is_dense, (outer.node, *inner.parts)))

    def sink(self, node: Node) -> bool:
        """Rule 6."""
        views, inner = _reshaped(node)
        join = self.join_of(inner) if inner is not None and _is_unary(node) else None
        if join is None or len({*join.parts}) > MOST_SUNK:
            return False
        if not self.written.isdisjoint(map(base_of, join.parts)):
            return False
        target, views = cast("Callable[..., Any]", node.target), views[::-1]
        if not _fits_sunk(node, join, views):
            return False

        def insert() -> Node:
            call = self.rewriter.inserter(node)
            made = {part: call(target, part, *node.args[1:]) for part in dict.fromkeys(join.parts)}
            new = call(join.node.target, [made[part] for part in join.parts], join.axis)
            for view in views:
                new = call(view.target, new, *view.args[1:])
            return new

        rule = f"{target}(cat([a, b])) -> cat([{target}(a), {target}(b)])"
        erase = [*views[::-1], join.node]
        return self.replace(rule, [node, *erase], insert, erase)


def _join_of(node: Node) -> _Join | None:
    """Return a concatenation or stack; None unless all parts are tensors of its rank and dtype."""
    tensor = tensor_of(node)
    given = node.args[0] if node.target in _JOINS and node.args else None
    if tensor is None or not isinstance(given, (list, tuple)) or not given:
        return None
    parts = [part for part in cast("Sequence[object]", given) if isinstance(part, Node)]
    axis = axis_of(tensor, arguments(node, 0)[0])
    rank = tensor.dim() - (node.target is aten.stack.default)
    types = [tensor_of(part) for part in parts]
    if axis is None or len(parts) != len(given):
        return None
    # a row without elements is left out by `cat`; another dtype is promoted
    fits = [t for t in types if t is not None and t.dim() == rank and t.dtype == tensor.dtype]
    if len(fits) != len(types):
        return None
    widths = (t.shape[axis] if t.dim() == tensor.dim() else 1 for t in fits)
    ends = accumulate(takewhile(lambda width: type(width) is int, widths))
    return _Join(node, parts, axis, list(ends))


def _runs(join: _Join, written: Container[Node]) -> list[Run]:
    """Return the parts of a join as runs; one of a single part is that part."""
    runs: list[Run] = []
    for part in join.parts:
        piece = join.placed(piece_of(part, written))
        longer = extend(runs[-1], piece, join.axis) if runs else None
        runs[-1:] = [longer] if longer is not None else [*runs[-1:], Run(piece, piece)]
    if len(join.parts) == 1:
        piece = join.placed(whole(join.parts[0]))
        return [Run(piece, piece)]
    return runs


def _fits(node: Node, value: Tensor) -> bool:
    """Return whether a value has the type of a node, and strides that no user distinguishes."""
    if not same_type(value_of(node), value):
        return False
    return same_layout(node, value) or not is_noticed({node: value.stride()})


def _only_part(node: Node) -> Node | None:
    """Rule 5."""
    split = node.args[0] if node.target is operator.getitem else None
    if not isinstance(split, Node) or split.target not in SPLITS:
        return None
    value, source = value_of(split), split.args[0]
    is_only = isinstance(value, (list, tuple)) and len(cast("list[object]", value)) == 1
    return source if is_only and isinstance(source, Node) else None


def _is_dense(node: Node) -> bool:
    """Return whether a tensor, and so the result of `cat`, is dense and row-major."""
    tensor = tensor_of(node)
    return tensor is not None and not any(map(fake.is_symbolic, tensor.shape)) and is_dense(tensor)


def _is_unary(node: Node) -> bool:
    """Return whether a node is a pointwise function of one tensor."""
    tags = getattr(node.target, "tags", ())
    is_pointwise = torch.Tag.pointwise in tags and node.target is not aten.clone.default
    return is_pointwise and len(node.args) == 1 and not node.kwargs and is_pure(node)


def _reshaped(node: Node) -> tuple[list[Node], Node | None]:
    """Return the reshapes below a node, the last first, and their source; None if it is shared."""
    views: list[Node] = []
    source = node.args[0] if node.args else None
    while isinstance(source, Node) and len(source.users) == 1:
        if source.target not in _RESHAPES or source.kwargs:
            return views, source
        views.append(source)
        source = source.args[0]
    return views, None


def _fits_sunk(node: Node, join: _Join, views: Sequence[Node]) -> bool:
    """Return whether the functions of the parts, joined and reshaped, have the layout of a node."""
    target = cast("Callable[..., Any]", node.target)
    made = [compute(target, (tensor_of(part),)) for part in join.parts]
    value = compute(cast("Any", join.node.target), (made, join.axis))
    for view in views:
        value = compute(cast("Any", view.target), (value, *view.args[1:]))
    return same_layout(node, value)


def examples() -> list[Example]:
    """Return programs that the pass changes, one for each rule."""
    x, y = torch.ones(4, 3), torch.ones(2, 3)
    cat, stack = aten.cat.default, aten.stack.default
    return [
        (lambda x: cat([x]).sin(), (x,)),
        (lambda x: cat(x.sin().split(1, 1), 1).sin(), (x,)),
        (lambda x: cat(x.split_with_sizes([1, 3]), -2).sin(), (x,)),
        (lambda x: cat([x[:1], x[1:3], x[3:]]).sin(), (x,)),
        (lambda x, y: cat([y, *x.split(1)[1:], y]), (x, y)),
        (lambda x: stack(x.unbind(0), 1), (x,)),
        (lambda x: stack(x.split(2), 1).sin(), (x,)),
        (lambda x: cat(x.unbind(1)).sin(), (x,)),
        (lambda x, y: stack([y[0], *x.unbind(0)]), (x, y)),
        (lambda x: stack([p.view(3, 2) for p in x.split(2)]).sin(), (x,)),
        (lambda x, y: aten.slice.Tensor(cat([x, y, x]), 0, 4, 6).sin(), (x, y)),
        (lambda x, y: cat([x, y, x])[5:6].sin(), (x, y)),
        (lambda x, y: cat([x, y]).split_with_sizes([3, 1, 2])[2].sin(), (x, y)),
        (lambda x: stack([x.sin(), x.cos()]).tanh().unbind(0)[1] * 2, (x,)),
        (lambda x, y: cat([cat([x, y]), y.sin()]), (x, y)),
        (lambda x, y: cat([x.t(), cat([y.t(), y.t()], 1)], -1), (x, y)),
        (lambda x: x.split(4)[0].sin(), (x,)),
        (lambda x, y: cat([x, y]).view(3, 6).tanh(), (x, y)),
    ]


PASS = SimplifySplitCat()
