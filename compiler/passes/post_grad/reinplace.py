"""Write into a tensor instead of a copy of it, if the old value has no later reader.

Rules, with `y` in the place of `x` from there on:
    1. `y = index_put(x, ...)` -> `index_put_(x, ...)`; the same with `scatter` (all forms),
       `index_add`, `index_copy`, `index_fill`, `masked_fill`, `addmm`, `baddbmm`
    2. `y = slice_scatter(x, v, ...)` -> `copy_(slice(x, ...), v)`; the same with `select_scatter`
    3. if `x` is an input that the program writes to, `copy_(x, y)` at the end is removed
Preconditions: `y` has the type and strides of `x`; this graph made the memory of `x`, or `x` is the
input of 3.; after `y` no node reads or writes `x` or a view of it (except that `copy_`), and no
opaque node gets one; `x` is not a second operand of `y`; neither `y` nor a view of it leaves the
graph, unless `x` is a whole tensor that was made here. Except `addmm` and `baddbmm` for the code
generator `eager` only: `torchscript` optimises less, or refuses, if a graph writes, and generators
of kernels plan memory themselves, but not that of products, which are library calls. Exact: the
functional operator is a copy and then the operator in place.

Source: `torch/_inductor/fx_passes/reinplace.py` also takes custom operators and kernels of Triton,
and counts users of a storage; this pass follows views.
"""

import operator
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import cast

import torch
from torch.fx import Graph, Node

from ctk.compiler.fx.collectives import waits_of
from ctk.compiler.fx.properties import base_of, is_mutating, is_pure, is_view
from ctk.compiler.fx.types import same_layout
from ctk.compiler.fx.walk import flat
from ctk.compiler.rewriting.base import Example, Pass
from ctk.compiler.rewriting.rewriter import Rewriter
from ctk.compiler.torch_compat.fx import operators, written_operands
from ctk.compiler.torch_compat.inductor import onednn

aten = torch.ops.aten
_IN_PLACE: Mapping[object, Callable[..., object]] = {
    aten.index_put.default: aten.index_put_.default,
    aten.index_add.default: aten.index_add_.default,
    aten.index_copy.default: aten.index_copy_.default,
    aten.index_fill.int_Scalar: aten.index_fill_.int_Scalar,
    aten.index_fill.int_Tensor: aten.index_fill_.int_Tensor,
    aten.masked_fill.Scalar: aten.masked_fill_.Scalar,
    aten.masked_fill.Tensor: aten.masked_fill_.Tensor,
    aten.scatter.src: aten.scatter_.src,
    aten.scatter.value: aten.scatter_.value,
    aten.scatter.reduce: aten.scatter_.reduce,
    aten.scatter.value_reduce: aten.scatter_.value_reduce,
    aten.scatter_add.default: aten.scatter_add_.default,
    aten.scatter_reduce.two: aten.scatter_reduce_.two,
}
_PRODUCTS: Mapping[object, Callable[..., object]] = {
    aten.addmm.default: aten.addmm_.default,
    aten.baddbmm.default: aten.baddbmm_.default,
}
_INTO_A_VIEW: Mapping[object, Callable[..., object]] = {
    aten.slice_scatter.default: aten.slice.Tensor,
    aten.select_scatter.default: aten.select.int,
}


@dataclass(frozen=True, slots=True)
class Destination:
    """The destination of a write: a tensor, and the `copy_` into an input to remove, if any."""

    tensor: Node
    copy: Node | None


class Reinplace(Pass):
    """Write into a tensor instead of a copy of it, if the old value has no later reader."""

    name = "reinplace"

    def run(self, rewriter: Rewriter) -> None:
        targets = _targets(rewriter.config.codegen)
        if not _has_candidates(rewriter.graph, targets):
            return
        places = {node: place for place, node in enumerate(rewriter.graph.nodes)}
        for node in rewriter.nodes():
            if node.target in targets:
                source = node.args[0] if node.args else None
                target = find_destination(node, source, node, places)
                if target is not None:
                    _write(rewriter, node, target)


def _targets(codegen: str) -> Collection[Callable[..., object]]:
    """Return the operators to replace for a code generator."""
    if codegen == "torchscript":
        return ()
    targets = [*_PRODUCTS, *_IN_PLACE, *_INTO_A_VIEW] if codegen == "eager" else [*_PRODUCTS]
    return cast("list[Callable[..., object]]", targets)


def _has_candidates(graph: Graph, targets: Collection[Callable[..., object]]) -> bool:
    return any(
        graph.find_nodes(op="call_function", target=target, sort=False) for target in targets
    )


def find_destination(
    writer: Node, source: object, result: Node | None, places: Mapping[Node, int]
) -> Destination | None:
    """Return where a node may write the new value of an operand; None if only into a copy.

    A result is dense: an operand with the same strides has no gaps and no overlaps.

    Args:
        writer: The node that computes the new value.
        source: The operand.
        result: The node of the new value; None if nothing reads it.
        places: The places of the graph's nodes; nodes that the pass has made have none.
    """
    if not isinstance(source, Node) or not (result is None or same_layout(source, result)):
        return None
    base = base_of(source)
    is_input = base.op == "placeholder"
    copy = _copy_back(base, result) if is_input and result is not None else None
    if not (_is_made_here(base) or (copy is not None and source is base)):
        return None
    shared = _aliases(base)
    others = [operand for operand in writer.all_input_nodes if operand is not source]
    if (
        shared is None
        or any(base_of(other) is base for other in others)
        or _reads(writer, source) > 1
    ):
        return None
    if result is not None and (is_input or source is not base) and _leaves(result, copy):
        return None
    users = {user for each in shared for user in each.users} - {writer, copy}
    users |= {wait for user in users for wait in waits_of(user)}
    is_late = any(places.get(user, -1) > places[writer] for user in users)
    return None if is_late or any(map(_hands_on, users)) else Destination(source, copy)


def _hands_on(user: Node) -> bool:
    """Return whether a write returns its destination, and the result has a user."""
    return is_mutating(user) and bool(user.users)


def _reads(node: Node, source: Node) -> int:
    return sum(each is source for each in flat([node.args, dict(node.kwargs)]))


def _aliases(base: Node) -> set[Node] | None:
    """Return a node and all views of it; None if a user may keep an unknown view."""
    aliases, queue = {base}, [base]
    while queue:
        for user in queue.pop().users:
            is_known = user.op == "output" or operators.declared_by(user.target) is not None
            is_functional = written_operands.is_functional(user.target)
            if not (is_known or is_functional or user.target is operator.getitem):
                return None
            if is_view(user) and user not in aliases:
                aliases.add(user)
                queue.append(user)
    return aliases


def _is_made_here(base: Node) -> bool:
    """Return whether a node's result is new memory; of ATen it is known who returns operands."""
    if getattr(base.target, "namespace", None) == "onednn":
        return base.target is onednn.qconvolution()
    is_aten = operators.declared_by(base.target) is not None and str(base.target)[:5] == "aten."
    return is_aten and is_pure(base) and base.target is not aten.conj_physical.default


def _copy_back(base: Node, node: Node) -> Node | None:
    """Return the only write to an input, if it writes a node's value and has no users."""
    copies = [user for user in node.users if user.target is aten.copy_.default]
    if len(copies) != 1 or copies[0].users or copies[0].args != (base, node):
        return None
    return copies[0] if [user for user in base.users if is_mutating(user)] == copies else None


def _leaves(node: Node, copy: Node | None) -> bool:
    """Return whether a node, or a view of it, leaves the graph by another way than a copy."""
    aliases = _aliases(node)
    if aliases is None:
        return True
    users = {user for alias in aliases for user in alias.users} - {copy}
    return any(user.op == "output" or is_mutating(user) for user in users)


def _write(rewriter: Rewriter, node: Node, target: Destination) -> None:
    def edit(graph: Graph) -> None:
        tensor, rest = target.tensor, node.args[1:]
        in_place = _IN_PLACE.get(node.target) or _PRODUCTS.get(node.target)
        if in_place is not None:
            rewriter.insert(in_place, (tensor, *rest), node.kwargs, before=node)
        else:
            kwargs = {name: value for name, value in node.kwargs.items() if name != "src"}
            values, place = (rest[0], rest[1:]) if rest else (node.kwargs["src"], ())
            view = rewriter.insert(_INTO_A_VIEW[node.target], (tensor, *place), kwargs, before=node)
            rewriter.insert(aten.copy_.default, (view, values), before=node)
        replace_by_destination(graph, node, target)

    nodes = [node, target.tensor, *([target.copy] if target.copy is not None else [])]
    rewriter.rewrite(f"{node.target}(x, ...) -> in place", nodes, edit)


def replace_by_destination(graph: Graph, result: Node, destination: Destination) -> None:
    """Let the users of a new value read it from its destination, and drop the copy into that."""
    tensor, copy = destination.tensor, destination.copy
    if copy is not None:
        copy.replace_all_uses_with(tensor)
        graph.erase_node(copy)
    result.replace_all_uses_with(tensor)
    graph.erase_node(result)


def examples() -> list[Example]:
    """Return programs that the pass changes: updates of tensors that the graph has made."""
    x, row = torch.ones(4, 3), torch.ones(3)
    return [
        (lambda x, row: aten.select_scatter.default(x.sin(), row, 0, 1) * 2, (x, row)),
        (lambda x: aten.slice_scatter.default(x.sin(), x[:2].cos(), 0, 1, 3).neg(), (x,)),
        (lambda x: aten.masked_fill.Scalar(x.sin(), x > 0, 2.0).neg(), (x,)),
    ]


PASS = Reinplace()
