"""Remove splits and concatenations, as programs write them, that undo one another.

Rules, along one dimension; `split` is `split` or `chunk`, in every form of a call:
    1. cat([x]) -> x
    2. cat(all of split(x), in order) -> x      stack(all of unbind(x), in order) -> x
    3. the item of split(cat([a, b])) that is just the piece b -> b
    4. cat([cat([a, b]), c]) -> cat([a, b, c])
    5. split(split(x)[i]) -> split(x) with more sections
    6. squeeze(each of split(x, 1)) -> unbind(x)
Preconditions: nothing in the graph writes. 1. to 3. the replacement of the copy has its type,
strides
and need of gradients, and is unobservable: neither the copy nor a possible view of it is returned.
4. the inner one has no other user, no mode is set between the two, and all pieces are
contiguous. 5. and 6. have no other users than their items, which are views as before. Sizes are
numbers, not symbols, except in 1. and 2. Exact.

Source: `torch/_inductor/fx_passes/split_cat.py` (`merge_splits`, `merge_split_squeeze`,
`merge_stack_tahn_unbind`, `normalize_cat_default`...) rewrite the patterns that an option names,
ignore strides and let a result share memory with an input. Most rules also apply after autograd
(`simplify_split_cat`), where fewer operators occur.
"""

import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import cast

import torch
from torch import Tensor
from torch.fx import Graph, Node

from ctk.compiler.fx.effects import is_barred, is_calm
from ctk.compiler.fx.torch_calls import TorchCall, call_of, function_of, may_escape, plain_tensor_of
from ctk.compiler.fx.types import is_dense, same_layout, value_of
from ctk.compiler.rewriting.base import Example, Pass
from ctk.compiler.rewriting.rewriter import Rewriter
from ctk.compiler.torch_compat.fake import fake_tensors as fake
from ctk.compiler.torch_compat.fx import operators

_SPLITS = (torch.split, torch.chunk)


class SimplifyTorchSplitCat(Pass):
    """Remove splits and concatenations that undo one another."""

    name = "simplify_torch_split_cat"

    def run(self, rewriter: Rewriter) -> None:
        if any(map(_may_write, rewriter.graph.nodes)):
            return
        simplifier = _Simplifier(rewriter)
        while simplifier.sweep():
            pass  # one rewrite may enable another one


@dataclass(frozen=True, slots=True)
class _Simplifier:
    """Applies the rules, and asks for no rewrite twice that was refused."""

    rewriter: Rewriter
    refused: set[Node] = field(default_factory=set[Node])

    def sweep(self) -> bool:
        """Return whether a rewrite was made anywhere."""
        made = [node for node in self.rewriter.nodes() if self.simplify(node)]
        return bool(made)

    def simplify(self, node: Node) -> bool:
        """Return whether a rewrite was made at a node."""
        if node in self.refused:
            return False
        function = function_of(node)
        rule, source = _original_of(node)
        if source is not None and _may_stand_for(source, node):
            return self.rewrite(rule, [node, source], partial(_replace, node, source))
        if function is torch.cat:
            inner = [piece for piece in _pieces(node) if function_of(piece) is torch.cat]
            return any(self._flatten(node, each) for each in dict.fromkeys(inner))
        return function in _SPLITS and (self._merge(node) or self._unbind(node))

    def rewrite(self, rule: str, nodes: list[Node], edit: Callable[[Graph], object]) -> bool:
        """Make a rewrite, or remember that it must not be made."""
        is_made = self.rewriter.rewrite(rule, nodes, edit)
        self.refused.update([] if is_made else nodes[:1])
        return is_made

    def _flatten(self, node: Node, inner: Node) -> bool:
        """Rule 4."""
        outer, call = call_of(node), call_of(inner)
        if outer is None or call is None or len(inner.users) != 1:
            return False
        parts, pieces = _pieces(inner), _pieces(node)
        ranks = {each.dim() for each in map(plain_tensor_of, (*parts, *pieces)) if each is not None}
        if _axis(outer, node) != _axis(call, inner) or len(ranks) != 1 or is_barred(inner, node):
            return False
        if not all(map(_is_dense, (*parts, *pieces))):
            return False

        def edit(graph: Graph) -> None:
            flat = [part for piece in pieces for part in (parts if piece is inner else [piece])]
            new = self.rewriter.insert(torch.cat, (flat, outer.arguments["dim"]), before=node)
            node.replace_all_uses_with(new)
            graph.erase_node(node)
            graph.erase_node(inner)

        return self.rewrite("cat([cat([a, b]), c]) -> cat([a, b, c])", [node, inner], edit)

    def _merge(self, inner: Node) -> bool:
        """Rule 5."""
        call = call_of(inner)
        item = (call.node("tensor") or call.node("input")) if call is not None else None
        outer = item.args[0] if item is not None and item.target is operator.getitem else None
        known = call_of(outer)
        if item is None or not isinstance(outer, Node) or known is None or call is None:
            return False
        source = known.node("tensor") or known.node("input")
        axis, items, parts = _axis(call, item), _items(outer), _items(inner)
        if known.function not in _SPLITS or source is None or axis != _axis(known, source):
            return False
        if axis is None or items is None or parts is None or is_barred(outer, inner):
            return False
        sizes, more = _sections(outer, axis), _sections(inner, axis)
        (place,) = (place for place, users in items.items() if item in users)
        if sizes is None or more is None or items[place] != [item] or len(item.users) != 1:
            return False

        def edit(graph: Graph) -> None:
            sections = [*sizes[:place], *more, *sizes[place + 1 :]]
            new = self.rewriter.insert(torch.split, (source, sections, axis), before=outer)
            later = {
                p if p < place else p + len(more) - 1: n for p, n in items.items() if p != place
            }
            for index, users in [*later.items(), *((place + p, n) for p, n in parts.items())]:
                for user in users:
                    user.args = (new, index)
            for node in (inner, item, outer):
                graph.erase_node(node)

        return self.rewrite("split(split(x)[i]) -> split(x)", [inner, outer], edit)

    def _unbind(self, split: Node) -> bool:
        """Rule 6."""
        call, items = call_of(split), _items(split)
        source = (call.node("tensor") or call.node("input")) if call is not None else None
        axis = _axis(call, source) if call is not None else None
        if call is None or not items or axis is None or source is None:
            return False
        if {*(_sections(split, axis) or [0])} != {1}:
            return False
        squeezes = {
            n: place for place, users in items.items() for user in users for n in user.users
        }
        if not squeezes or not all(_is_squeeze(node, axis) for node in squeezes):
            return False

        def edit(graph: Graph) -> None:
            new = self.rewriter.insert(torch.unbind, (source, axis), before=split)
            for node, place in squeezes.items():
                item = self.rewriter.insert(operator.getitem, (new, place), before=node)
                node.replace_all_uses_with(item)
                graph.erase_node(node)
            for node in [user for users in items.values() for user in users]:
                graph.erase_node(node)
            graph.erase_node(split)

        return self.rewrite("squeeze(each of split(x, 1)) -> unbind(x)", [split, *squeezes], edit)


def _replace(node: Node, source: Node, graph: Graph) -> None:
    node.replace_all_uses_with(source)
    graph.erase_node(node)


def _may_write(node: Node) -> bool:
    is_switch = node.op == "call_function" and operators.is_switch(node.target)
    return not is_calm(node) and not is_switch


def _original_of(node: Node) -> tuple[str, Node | None]:
    """Rules 1 to 3: return the original of a copy."""
    if node.target is operator.getitem:
        return "the item of split(cat([a, b])) that is b -> b", _whole_piece(node)
    call = call_of(node) if function_of(node) in (torch.cat, torch.stack) else None
    pieces = _pieces(node) if call is not None else []
    if call is None or not pieces:
        return "", None
    if len(pieces) == 1 and call.function is torch.cat:
        return "cat([x]) -> x", pieces[0]
    name = "cat" if call.function is torch.cat else "stack"
    return f"{name}(all parts of x) -> x", _source_of_all(node, call, pieces)


def _pieces(node: Node) -> list[Node]:
    """Return the pieces of a concatenation, if all are nodes."""
    call = call_of(node)
    given = call.arguments.get("tensors") if call is not None else None
    return [each for each in given if isinstance(each, Node)] if _is_list(given) else []  # type: ignore[union-attr]  # it is a list


def _is_list(value: object) -> bool:
    return isinstance(value, (list, tuple))


def _axis(call: TorchCall, like: Node | None) -> int | None:
    """Return the dimension of a call, counted from 0 in the rank of a tensor."""
    given, tensor = call.arguments.get("dim"), plain_tensor_of(like)
    if not isinstance(given, int) or tensor is None or not tensor.dim():
        return None
    return given % tensor.dim()


def _items(split: Node) -> dict[int, list[Node]] | None:
    """Return the users of a split by item; None if a user does not take an item."""
    values, items = value_of(split), dict[int, list[Node]]()
    count = len(cast("list[object]", values)) if _is_list(values) else 0
    for user in split.users:
        index = user.args[1] if user.target is operator.getitem else None
        if type(index) is not int or not -count <= index < count:
            return None
        items.setdefault(index % count, []).append(user)
    return items


def _source_of_all(node: Node, call: TorchCall, pieces: Sequence[Node]) -> Node | None:
    """Rule 2."""
    split = pieces[0].args[0] if pieces[0].target is operator.getitem else None
    known = call_of(split)
    wanted = _SPLITS if call.function is torch.cat else (torch.unbind,)
    if not isinstance(split, Node) or known is None or known.function not in wanted:
        return None
    items = _items(split)
    source = known.node("tensor") or known.node("input")
    if items is None or len(pieces) != len(cast("list[object]", value_of(split))):
        return None
    is_all = all(piece in items.get(place, ()) for place, piece in enumerate(pieces))
    is_same = _axis(call, node) == _axis(known, source) is not None
    return source if is_all and is_same else None


def _sections(split: Node, axis: int) -> list[int] | None:
    values = value_of(split)
    parts = cast("list[torch.Tensor]", values) if _is_list(values) else []
    sizes = [part.shape[axis] for part in parts]
    return sizes if sizes and all(type(size) is int for size in sizes) else None


def _whole_piece(node: Node) -> Node | None:
    """Rule 3."""
    split = node.args[0]
    known = call_of(split)
    if not isinstance(split, Node) or known is None or known.function not in _SPLITS:
        return None
    cat = known.node("tensor") or known.node("input")
    joined = call_of(cat)
    if cat is None or joined is None or joined.function is not torch.cat:
        return None
    axis, items = _axis(known, cat), _items(split)
    if axis is None:
        return None
    sections = _sections(split, axis)
    if axis != _axis(joined, cat) or sections is None or items is None:
        return None
    (place,) = (place for place, users in items.items() if node in users)
    begin = 0
    for piece in _pieces(cat):
        tensor = plain_tensor_of(piece)
        if tensor is None or tensor.dim() != cast("torch.Tensor", value_of(cat)).dim():
            return None  # an empty row is left out by `cat`
        if (begin, tensor.shape[axis]) == (sum(sections[:place]), sections[place]):
            return piece
        begin += tensor.shape[axis]
    return None


def _may_stand_for(source: Node, node: Node) -> bool:
    mine, others = plain_tensor_of(node), plain_tensor_of(source)
    if mine is None or others is None or not same_layout(node, source) or may_escape(node):
        return False
    is_known = getattr(source.target, "namespace", "aten") in ("aten", "prims")
    return is_known and mine.requires_grad == others.requires_grad


def _is_dense(node: Node) -> bool:
    tensor = plain_tensor_of(node)
    return tensor is not None and not any(map(fake.is_symbolic, tensor.shape)) and is_dense(tensor)


def _is_squeeze(node: Node, axis: int) -> bool:
    call = call_of(node) if function_of(node) is torch.squeeze else None
    return call is not None and _axis(call, call.node("input")) == axis


def examples() -> list[Example]:
    """Return programs that the pass changes, one for each rule."""
    x, y = torch.ones(4, 3), torch.ones(4, 3)
    return [
        (lambda x: torch.cat([x.sin()]).cos(), (x,)),
        (_join, (x,)),
        (_stack, (x,)),
        (lambda x, y: torch.split(torch.cat([x.sin(), y]), [4, 4])[0].cos(), (x, y)),
        (lambda x, y: torch.cat((x, torch.cat([y, x], -1)), 1), (x, y)),
        (_split_twice, (x,)),
        (_squeeze, (x,)),
    ]


def _join(x: Tensor) -> Tensor:
    a, b = x.sin().split(2)
    return torch.cat([a, b], dim=0).cos()


def _stack(x: Tensor) -> Tensor:
    a, b, c = x.sin().unbind(1)
    return torch.stack((a, b, c), -1).cos()


def _split_twice(x: Tensor) -> Tensor:
    a, b = torch.split(x, [1, 3])
    c, d = b.split([1, 2])
    return a + c * d


def _squeeze(x: Tensor) -> Tensor:
    a, _, c = torch.chunk(x, 3, dim=1)
    return a.squeeze(1) + torch.squeeze(c, -1)


PASS = SimplifyTorchSplitCat()
