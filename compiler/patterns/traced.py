"""Traced functions as patterns: a graph of calls with or without its shapes.

    def search(x, k):          n0 = Op(aten.transpose.int, (Var("k"), Dim(-2), Dim(-1)))
        return x @ k.mT   ->   n1 = Op(aten.mm.default, (Var("x"), n0))

For the first look (`exact=False`) shapes are left out: sizes, strides and indices, which operators
declare as `SymInt`, and dtypes and devices match anything. For the check they are as traced, by
text: `4`, or `s0` for a symbol. Dimensions are counted from the end in both.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import cast

import torch
from torch.fx import GraphModule, Node

from ctk.compiler.fx.types import tensor_of, value_of
from ctk.compiler.patterns.expression import ANY, Dim, Op, Reshape, Size, Var
from ctk.compiler.patterns.solve import size_text
from ctk.compiler.torch_compat.fake import fake_tensors as fake
from ctk.compiler.torch_compat.fx import arguments

aten = torch.ops.aten


@dataclass(frozen=True, slots=True)
class _Reading:
    """The state of reading a traced graph."""

    exact: bool
    parts: dict[Node, object]
    scalars: Mapping[tuple[type, float], str]
    varying: frozenset[tuple[str, int]]


def pattern_of(
    module: GraphModule,
    names: Sequence[str],
    *,
    exact: bool,
    scalars: Mapping[tuple[type, float], str] | None = None,
    varying: frozenset[tuple[str, int]] = frozenset(),
) -> tuple[Op, ...]:
    """Return a traced graph as a pattern with a root for each result that is computed.

    Args:
        names: The variables of its first placeholders; the others are called `extra_0`, ...
        exact: Whether sizes, dtypes and devices are as traced, or match anything.
        scalars: Constants in place of scalar arguments: `{(float, 0.113): "scale"}`.
        varying: Places of constants (name of the node, place of the argument) to leave out.

    Raises:
        ValueError: The function makes a tensor constant, or has no computed result.
    """
    reading = _Reading(exact, {}, scalars or {}, varying)
    known = iter([*names, *(f"extra_{i}" for i in range(len(module.graph.nodes)))])
    roots: dict[Op, None] = {}
    for node in module.graph.nodes:
        if node.op == "placeholder":
            reading.parts[node] = Var(next(known))
        elif node.op == "call_function":
            reading.parts[node] = _op_of(node, reading)
        elif node.op == "output":
            results = [reading.parts[operand] for operand in node.all_input_nodes]
            roots |= {result: None for result in results if isinstance(result, Op)}
        else:
            raise ValueError(f"a pattern holds a constant, {node.target}: make it an argument")
    if not roots:
        raise ValueError("a pattern returns nothing that it computes")
    return tuple(roots)


def _op_of(node: Node, reading: _Reading) -> object:
    if reading.exact and fake.is_symbolic(value_of(node)):
        return Size(size_text(node))
    if node.target in (aten.view.default, aten._unsafe_view.default):
        return _reshape_of(node, reading)
    operands = arguments.full_arguments(node.target, node.args, node.kwargs) or ()
    kinds = arguments.argument_kinds(node.target) or ("other",) * len(operands)
    parts = [_part(each, kind, node, reading) for each, kind in zip(operands, kinds, strict=True)]
    for place in range(len(parts)):
        if (node.name, place) in reading.varying:
            parts[place] = parts[place] if isinstance(parts[place], Var) else ANY
    return Op(node.target, tuple(parts))


def _reshape_of(node: Node, reading: _Reading) -> Op:
    """Return a reshape, which copies if the strides of the example did not allow a view."""
    (source,) = node.all_input_nodes[:1]
    if node.target is aten._unsafe_view.default and source.target is aten.clone.default:
        (source,) = source.all_input_nodes
    sizes = _part(node.args[1], "size", node, reading)
    return Reshape(aten.view.default, (reading.parts[source], sizes))


def _part(value: object, kind: arguments.ArgumentKind, call: Node, reading: _Reading) -> object:
    if isinstance(value, Node):
        part = reading.parts[value]
        return ANY if kind == "size" and not reading.exact else part
    if isinstance(value, (int, float)) and (type(value), value) in reading.scalars:
        return Var(reading.scalars[type(value), value])
    if kind == "size" and not _holds_scalar(value, reading):
        return _size(value) if reading.exact else ANY
    if isinstance(value, (list, tuple)):
        return [_part(each, kind, call, reading) for each in cast("Sequence[object]", value)]
    if kind == "dim" and isinstance(value, int):
        return _dim(value, call)
    if isinstance(value, (torch.dtype, torch.device)) and not reading.exact:
        return ANY
    return value


def _holds_scalar(value: object, reading: _Reading) -> bool:
    return isinstance(value, (list, tuple)) and any(
        isinstance(each, int) and (int, each) in reading.scalars
        for each in cast("Sequence[object]", value)
    )


def _size(value: object) -> object:
    if isinstance(value, (list, tuple)):
        return [_size(each) for each in cast("Sequence[object]", value)]
    return value if value is None else Size(size_text(value))


def _dim(value: int, call: Node) -> object:
    tensor = tensor_of(call.all_input_nodes[0]) if call.all_input_nodes else None
    if value >= 0 and tensor is None:
        return value
    return Dim(value if tensor is None or value < 0 else value - tensor.dim())


def varying_constants(one: GraphModule, other: GraphModule) -> frozenset[tuple[str, int]]:
    """Return the places of the constants in which two traces of a function differ.

    Raises:
        ValueError: The traces differ in more than constants.
    """
    found: set[tuple[str, int]] = set()
    for a, b in zip(one.graph.nodes, other.graph.nodes, strict=True):
        if a.target != b.target and a.op == "call_function":
            raise ValueError(f"another scalar makes another graph: {a.target}, {b.target}")
        mine = arguments.full_arguments(a.target, a.args, a.kwargs) or ()
        others = arguments.full_arguments(b.target, b.args, b.kwargs) or ()
        for place, (x, y) in enumerate(zip(mine, others, strict=True)):
            if isinstance(x, (int, float)) and x != y:
                found.add((a.name, place))
    return frozenset(found)
