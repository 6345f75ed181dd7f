"""Run a case on fake tensors, node by node, with sizes given by `Sizes`; sub-graphs too."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, ClassVar, Protocol

import torch
from torch.fx import GraphModule, Node
from torch.fx.node import map_arg

from ctk.compiler.fx.walk import fetch, input_names, placeholders
from ctk.compiler.torch_compat.fake import fake_tensors as fake
from ctk.compiler.torch_compat.fx.graphs import tree_leaves
from ctk.compiler.torch_compat.process.process_state import (
    outside_dispatch_modes,
    process_state_kept,
)
from ctk.toolkit.case.case import Case
from ctk.toolkit.execution.modes import apply_modes
from ctk.toolkit.reduce.dimensions.size_places import SizePlace, map_arguments, place_of_input
from ctk.toolkit.reduce.eager_values import call_node, describe
from ctk.toolkit.reduce.subgraphs import (
    LOOPS,
    PLAIN_BODIES,
    Subgraph,
    operands_of,
    subgraphs,
)

_VIEWS: Mapping[str, Callable[..., object]] = MappingProxyType({
    "slice_scatter": torch.ops.aten.slice.Tensor,
    "select_scatter": torch.ops.aten.select.int,
    "diagonal_scatter": torch.ops.aten.diagonal.default,
})  # fmt: skip
"""Operators that put a tensor into another, each with its inverse."""


class Mismatch(Exception):
    """Two values that must agree in form do not."""


class Sizes(Protocol):
    """Gives the sizes of a run.

    Attributes:
        retries: A node that raises runs again with its own literals.
    """

    retries: ClassVar[bool]

    def running(self) -> AbstractContextManager[None]:
        """Return the context in which operators run."""
        ...

    def tensor(self, value: torch.Tensor, place: SizePlace) -> Any:
        """Return the fake tensor for an input or constant."""
        ...

    def size(self, value: int, place: SizePlace) -> Any:
        """Return the number for an input or a literal."""
        ...

    def result(self, value: object, given: Any, *, refused: bool = False) -> object:
        """Return the value of a node that was called with `given`, or refused that."""
        ...


@dataclass(slots=True)
class Propagation:
    """One run.

    Attributes:
        needs_data: Some sizes are known only when the program runs.
        seen: Symbolic sizes of all computed tensors, by their text.
        empty: Values without elements: path of the graph, name of the node.
    """

    sizes: Sizes
    infos: dict[str, object] = field(default_factory=dict[str, object])
    needs_data: bool = False
    seen: dict[str, Any] = field(default_factory=dict[str, Any])
    empty: set[tuple[str, str]] = field(default_factory=set[tuple[str, str]])

    def run(self, case: Case) -> None:
        """Run a whole case."""
        names = input_names(case.graph)
        with apply_modes(case.modes), process_state_kept(), fake.without_log():
            inputs = [
                self._input(name, value) for name, value in zip(names, case.inputs, strict=True)
            ]
            with self.sizes.running():
                self._graph(case.graph, inputs, "")

    def _input(self, name: str, value: object) -> object:
        place = place_of_input(name, value)
        if isinstance(value, torch.Tensor):
            return self.sizes.tensor(value, place)
        return self.sizes.size(value, place) if type(value) is int else value

    def _graph(self, gm: GraphModule, inputs: Sequence[object], path: str) -> object:
        env: dict[Node, Any] = {}
        operands = iter(inputs)
        called = {subgraph.call: subgraph for subgraph in subgraphs(gm)}
        for node in gm.graph.nodes:
            if node.op == "placeholder":
                env[node] = next(operands)
            elif node.op == "output":
                return map_arg(node.args[0], env.__getitem__)
            elif node.op == "get_attr":
                env[node] = self._constant(fetch(gm, str(node.target)), path, str(node.target))
            else:
                call = called.get(node.name)
                env[node] = (
                    self._bodies(gm, node, env, path) if call else self._node(gm, node, env, path)
                )
                self._note(env[node], path, node.name)
            if not path:
                self.infos[node.name] = describe(env[node])
        raise AssertionError("a graph without an output node")

    def _constant(self, value: object, path: str, target: str) -> object:
        if not isinstance(value, torch.Tensor):
            return value
        with outside_dispatch_modes():
            return self.sizes.tensor(value, SizePlace("constant", path, target))

    def _node(self, gm: GraphModule, node: Node, env: Mapping[Node, Any], path: str) -> object:
        own: Any = map_arg((node.args, node.kwargs), env.__getitem__)
        given: Any = map_arg(map_arguments(node, path, self.sizes.size), env.__getitem__)
        try:
            value = call_node(gm, node, *given)
            _check_scattered(node, given)
            return self.sizes.result(value, given)
        except Exception:
            if not self.sizes.retries:
                raise
        return self.sizes.result(call_node(gm, node, *own), given, refused=True)

    def _bodies(self, gm: GraphModule, node: Node, env: Mapping[Node, Any], path: str) -> object:
        """Run the sub-graphs of a call; all must return values of one form."""
        if getattr(node.target, "__name__", "") not in PLAIN_BODIES:
            return self._node(gm, node, env, path)
        bodies = [subgraph for subgraph in subgraphs(gm) if subgraph.call == node.name]
        results = [self._body(body, node, env, path) for body in bodies]
        is_loop = getattr(node.target, "__name__", "") in LOOPS
        for result in results[:-1] if not is_loop else []:
            _same_form(result, results[-1])
        if is_loop:
            carried = tree_leaves(map_arg(node.args[2], env.__getitem__))
            _same_form(carried, results[-1])
        return results[-1]

    def _body(self, body: Subgraph, node: Node, env: Mapping[Node, Any], path: str) -> object:
        operands = operands_of(node, len(placeholders(body.graph)))
        if operands is None:
            raise Mismatch(f"{node.name} has too few operands for {body.target}")
        inner = f"{path}.{body.target}" if path else body.target
        given: Any = list(operands)
        return self._graph(body.graph, map_arg(given, env.__getitem__), inner)

    def _note(self, value: object, path: str, name: str) -> None:
        tensors = [leaf for leaf in tree_leaves(value) if isinstance(leaf, torch.Tensor)]
        shapes = [size for tensor in tensors for size in tensor.shape]
        self.needs_data = self.needs_data or fake.has_unbacked(value)
        self.seen |= {str(size): size for size in shapes if fake.is_symbolic(size)}
        if any(_number(size) == 0 for size in shapes):
            self.empty.add((path, name))


def _number(size: int) -> object:
    return size if type(size) is int else fake.symbol_and_hint(size)[1]


def _check_scattered(node: Node, given: Any) -> None:
    """Check that a part put into a tensor has the form of its place; fake tensors do not."""
    name = getattr(getattr(node.target, "overloadpacket", node.target), "__name__", node.target)
    view = _VIEWS.get(str(name))
    if view is None:
        return
    args, kwargs = given
    named = dict(zip(("input", "src"), args, strict=False)) | kwargs
    whole, part = named.pop("input", named.pop("self", None)), named.pop("src")
    _same_form(view(whole, *args[2:], **named), part)


def _same_form(one: object, other: object) -> None:
    """Check that values agree in number and sizes; with symbols, that demands their equality."""
    mine, others = tree_leaves(one), tree_leaves(other)
    if len(mine) != len(others):
        raise Mismatch(f"{len(mine)} values, {len(others)} values")
    for a, b in zip(mine, others, strict=True):
        if not isinstance(a, torch.Tensor) or not isinstance(b, torch.Tensor):
            continue
        pairs = zip(a.shape, b.shape, strict=False)
        if a.dim() != b.dim() or not all(bool(x == y) for x, y in pairs):
            raise Mismatch(f"{tuple(a.shape)} and {tuple(b.shape)}")
