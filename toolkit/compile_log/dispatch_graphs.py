"""The steps of dispatch as graphs that can be run: from the captured graph to the traced one.

1. The captured graph and the traced one: each captured value must equal a value that came from its
   node (`map_origins`). Values without a traced node are not compared.
2. A decomposition: each operator whole, and the nodes that replaced it.

All operators that one decomposition replaced make one graph, so that they are run in one go. Its
inputs are values of the traced graph; its results are compared with values of the traced graph:

    traced:  x -> mul -> erf -> add -> mul_2      gelu(x) is mul_2
    whole:   x -> gelu                            compared with mul_2

Left out: operators that draw random numbers or return unwritten memory, because their values
change from run to run; and unused results, which the traced graph no longer holds.
"""

from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from operator import getitem
from typing import Any, cast

import torch
from torch.fx import Graph, GraphModule, Node

from ctk.compiler.fx.properties import is_random
from ctk.compiler.observe import Decomposed, PassRecord, StageRecord, TracedValue
from ctk.compiler.torch_compat.fx import graphs
from ctk.toolkit.compile_log.recorder import Event


@dataclass(frozen=True, slots=True)
class WholeOperators:
    """The operators that one decomposition replaced, as a graph.

    Attributes:
        graph: Calls them; its placeholders have the names of nodes of the traced graph.
        results: For each value to compare, the node of the traced graph.
    """

    graph: GraphModule
    results: Mapping[str, Sequence[str]]


@dataclass(slots=True)
class DispatchTrace:
    """Follows the events of one compile up to its first traced graph.

    Attributes:
        captured: The graph to be traced: the captured one after its passes.
    """

    captured: GraphModule | None = None
    decompositions: list[PassRecord] = field(default_factory=list[PassRecord])
    is_over: bool = False

    def see(self, event: Event) -> GraphModule | None:
        """Record an event; return the traced graph if the event holds it."""
        if self.is_over:
            return None
        if isinstance(event, StageRecord):
            self.is_over = event.stage in ("joint", "forward")
            if self.is_over:
                return event.graph
            self.captured = event.graph
        if isinstance(event, PassRecord) and event.id.stage in ("captured", "pre_grad"):
            self.captured = event.after
        if isinstance(event, PassRecord) and event.id.stage == "dispatch":
            self.decompositions.append(event)
        return None


def map_origins(traced: GraphModule, captured: GraphModule) -> Mapping[str, Sequence[str]]:
    """Return for each captured node the traced nodes that came from it.

    Empty if the traced graph draws random numbers, because tracing may reorder the draws.
    """
    if any(is_random(node) for node in traced.graph.nodes):
        return {}
    own = {node.name for node in captured.graph.nodes if node.op != "output"}
    traced_nodes: dict[str, list[str]] = {}
    for node in traced.graph.nodes:
        name = nearest_origin(node, own)
        if name is not None and node.op == "call_function":
            traced_nodes.setdefault(name, []).append(node.name)
    names = (node.name for node in captured.graph.nodes)
    return {name: traced_nodes[name] for name in names if name in traced_nodes}


def nearest_origin(node: Node, own: Container[str]) -> str | None:
    """Return the latest node among `own` in the nested history of a node."""
    queue = list(cast("list[Any]", node.meta.get("from_node") or []))[::-1]
    while queue:
        source = queue.pop(0)
        if str(getattr(source, "name", None)) in own:
            return str(source.name)
        queue += list(getattr(source, "from_node", None) or [])[::-1]
    return None


def build_whole_operators(record: PassRecord, traced: GraphModule) -> WholeOperators | None:
    """Return the operators that a decomposition replaced; None if none can be compared."""
    names = {node.name for node in traced.graph.nodes}
    builder = _WholeOperatorBuilder(names)
    for made in record.decomposed:
        if is_repeatable(made.operator):
            builder.add(made)
    return builder.finish()


def is_repeatable(operator: Callable[..., object]) -> bool:
    """Return whether an operator gives the same values again for the same operands."""
    tags = getattr(operator, "tags", ())
    name = str(operator).partition(".")[2]
    return torch.Tag.nondeterministic_seeded not in tags and "empty" not in name


class _WholeOperatorBuilder:
    def __init__(self, known: set[str]) -> None:
        self._known = known
        self._graph = Graph()
        self._inputs: dict[str, Node] = {}
        self._calls: list[Decomposed] = []
        self._compared: list[Node] = []
        self._results: dict[str, list[str]] = {}

    def add(self, made: Decomposed) -> None:
        """Add an operator if its operands and one of its results are still in the graph."""
        operands = set(_names((made.args, dict(made.kwargs))))
        if operands <= self._known and self._known.intersection(_names(made.results)):
            self._calls.append(made)
            for name in sorted(operands - set(self._inputs)):
                self._inputs[name] = self._graph.placeholder(name)

    def finish(self) -> WholeOperators | None:
        for made in self._calls:
            self._call(made)
        self._graph.output(tuple(self._compared))
        if not self._results:
            return None
        return WholeOperators(GraphModule({}, self._graph), self._results)

    def _call(self, made: Decomposed) -> None:
        args, kwargs = graphs.tree_map(self._operand, (made.args, dict(made.kwargs)))
        call = self._graph.call_function(made.operator, args, kwargs)
        if isinstance(made.results, TracedValue):
            self._compare(call, made.results)
        elif isinstance(made.results, (list, tuple)):
            for index, result in enumerate(cast("tuple[object, ...]", made.results)):
                if isinstance(result, TracedValue):
                    self._compare(self._graph.call_function(getitem, (call, index)), result)

    def _compare(self, node: Node, result: TracedValue) -> None:
        if result.node in self._known:
            self._results[node.name] = [result.node]
            self._compared.append(node)

    def _operand(self, value: object) -> object:
        return self._inputs[value.node] if isinstance(value, TracedValue) else value


def _names(values: object) -> Iterator[str]:
    for leaf in graphs.tree_leaves(values):
        if isinstance(leaf, TracedValue):
            yield leaf.node
