"""Build the graph and inputs of a draw: program, neighbours, results, types.

x = placeholder                       an operand
alias = aten.alias(x)                 ... that is a view
fill_ = aten.fill_(x, 3)              a neighbour that writes
t = aten.t(alias); t_1 = aten.t(t)    the program
clone = aten.clone(t)                 a neighbour that uses a value of it
return [t_1, clone]
"""

from dataclasses import dataclass, replace
from typing import Any, cast

import torch
from torch import Tensor
from torch.fx import Graph, GraphModule, Node
from torch.fx.node import Argument

from ctk.compiler.torch_compat.fake import fake_tensors as fake
from ctk.compiler.torch_compat.fx.graphs import tree_map
from ctk.toolkit.verify_rules.draws import CallResult, Draw, DrawCall, Neighbour
from ctk.toolkit.verify_rules.operands import Constant, Operand, TensorDraw, Variable

aten = torch.ops.aten
WRITTEN = 3
"""The number that a neighbour writes."""


@dataclass(frozen=True, slots=True)
class DrawnGraph:
    """A graph whose nodes have types after `add_types`, with one tensor per placeholder."""

    graph: GraphModule
    inputs: tuple[Tensor, ...]


def build_graph(draw: Draw) -> DrawnGraph:
    """Return the graph of a draw, without types, and its inputs."""
    builder = _Builder(draw)
    builder.build()
    return DrawnGraph(GraphModule(builder.root, builder.graph), tuple(builder.inputs))


def run_inputs(draw: Draw) -> tuple[Tensor, ...]:
    """Return the inputs to run the graph of a draw with: as typed, or larger."""
    tensors = [tensor for each in draw.bound.values() for tensor in operand_tensors(each)]
    return tuple(grow_operand(t, draw).tensor() for t in tensors if t.place != "constant")


def operand_tensors(operand: Operand) -> tuple[TensorDraw, ...]:
    """Return the tensors of an operand."""
    if isinstance(operand, TensorDraw):
        return (operand,)
    return operand if isinstance(operand, tuple) else ()


def grow_operand(tensor: TensorDraw, draw: Draw) -> TensorDraw:
    """Return an operand in the size of the run: sizes above 1 are symbols and may grow."""
    by = draw.grown if draw.dynamic else 0
    return replace(tensor, shape=tuple(size + by if size > 1 else size for size in tensor.shape))


def add_types(built: DrawnGraph, *, dynamic: bool) -> tuple[Any, tuple[Tensor, ...]]:
    """Annotate each node with its type; return the fake mode and the fake inputs."""
    from torch.fx.passes.fake_tensor_prop import FakeTensorProp

    mode = fake.new_fake_mode()
    fakes = tuple(
        fake.symbolic_like(each, mode, f"in{index}")
        if dynamic
        else cast("Tensor", fake.to_fake(each, mode))
        for index, each in enumerate(built.inputs)
    )
    with torch.no_grad(), fake.without_log():
        FakeTensorProp(built.graph, mode).propagate_dont_convert_inputs(*fakes)
    return mode, fakes


class _Builder:
    def __init__(self, draw: Draw) -> None:
        self.draw = draw
        self.graph = Graph()
        self.root = torch.nn.Module()
        self.inputs: list[Tensor] = []
        self.bases: dict[str, Node] = {}
        self.nodes: dict[str, Argument] = {}
        self.calls: dict[int, Node] = {}
        self.outputs: list[Node] = []
        self.sizes: dict[int, tuple[Node, int]] = {}

    def build(self) -> None:
        for name, operand in self.draw.bound.items():
            if operand_tensors(operand):
                self._place(name, operand)
        for name, operand in self.draw.bound.items():
            if not operand_tensors(operand):
                self.nodes[name] = self._argument(operand)
        for number, call in enumerate(self.draw.program.calls):
            self._neighbours(number)
            self.calls[number] = self._call(call)
        self._neighbours(len(self.calls))
        results = [self.calls[number] for number in self.draw.program.results]
        if not self.draw.returned:
            results = [self._add(aten.clone.default, (result,)) for result in results]
        self.graph.output([*results, *self.outputs])

    def _place(self, name: str, operand: Operand) -> None:
        """Add the nodes of tensors: first of all, because a graph starts with its placeholders."""
        nodes = [
            self._tensor(f"{name}_{index}" if index else name, tensor)
            for index, tensor in enumerate(operand_tensors(operand))
        ]
        self.bases[name] = nodes[0]
        self.nodes[name] = nodes[0] if isinstance(operand, TensorDraw) else nodes

    def _tensor(self, name: str, draw: TensorDraw) -> Node:
        tensor = draw.tensor()
        if draw.place == "constant":
            self.root.register_buffer(f"c_{name}", tensor, persistent=False)
            return self.graph.get_attr(f"c_{name}")
        self.inputs.append(tensor)
        placeholders = self.graph.find_nodes(op="placeholder")
        after = placeholders[-1] if placeholders else None
        with self.graph.inserting_after(after) if after else self.graph.inserting_before():
            node = self.graph.placeholder("self_" if name == "self" else name)
        for dim, size in enumerate(draw.shape if self.draw.dynamic else ()):
            if size > 1:
                self.sizes.setdefault(size, (node, dim))
        return node

    def _argument(self, operand: Operand) -> Argument:
        if isinstance(operand, Variable):
            return self.nodes[operand.name]
        value = cast(Constant, operand).value
        if not isinstance(value, tuple):
            return cast("Argument", value)
        return [self._size(size) for size in cast("tuple[int, ...]", value)]

    def _size(self, size: int) -> int | Node:
        """Return a number of a list, or the symbol of an equal size."""
        if size not in self.sizes:
            return size
        node, dim = self.sizes[size]
        return self._add(aten.sym_size.int, (node, dim))

    def _call(self, call: DrawCall) -> Node:
        return self._add(call.target, *tree_map(self._operand, (call.args, dict(call.kwargs))))

    def _operand(self, part: object) -> Argument:
        if isinstance(part, CallResult):
            return self.calls[part.number]
        if not isinstance(part, Variable):
            return cast("Argument", part)
        operand = self.draw.bound[part.name]
        if isinstance(operand, Variable):
            return self._operand(operand)
        base, is_view = self.bases.get(part.name), getattr(operand, "place", "") == "view"
        if is_view and base is not None and self.nodes[part.name] is base:
            self.nodes[part.name] = self._add(aten.alias.default, (base,))
        return self.nodes[part.name]

    def _neighbours(self, at: int) -> None:
        """Add the nodes beside the program before a call; none of a value that is not built yet."""
        count = len(self.draw.program.calls)
        for neighbour in self.draw.neighbours:
            known = self.bases if isinstance(neighbour.of, str) else self.calls
            node = cast("dict[str | int, Node]", known).get(neighbour.of)
            if min(neighbour.at, count) == at and node is not None:
                self._neighbour(neighbour, node)

    def _neighbour(self, each: Neighbour, node: Node) -> None:
        if each.kind == "write":
            self._add(aten.fill_.Scalar, (node, WRITTEN))
            return
        reader = node if each.kind == "return" else self._add(aten.clone.default, (node,))
        if each.kind != "drop":
            self.outputs.append(reader)

    def _add(
        self, target: object, args: tuple[Argument, ...], kwargs: dict[str, Argument] | None = None
    ) -> Node:
        call = self.graph.call_method if isinstance(target, str) else self.graph.call_function
        return call(cast("Any", target), args, kwargs or {})
