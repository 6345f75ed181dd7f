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
    """Return the operators that a decomposition replaced; None if none can be compared.

    An operator counts if its operands and one of its results are still in the traced graph.
    """
    known = {node.name for node in traced.graph.nodes}
    graph, inputs, results = Graph(), dict[str, Node](), dict[Node, str]()
    calls: list[Decomposed] = []
    for made in record.decomposed:
        operands = {*_names((made.args, dict(made.kwargs)))}
        is_whole = operands <= known and not known.isdisjoint(_names(made.results))
        if is_whole and is_repeatable(made.operator):
            calls.append(made)
            for name in sorted(operands - inputs.keys()):
                inputs[name] = graph.placeholder(name)

    def find_input(value: object) -> object:
        return inputs[value.node] if isinstance(value, TracedValue) else value

    for made in calls:
        args, kwargs = graphs.tree_map(find_input, (made.args, dict(made.kwargs)))
        call = graph.call_function(made.operator, args, kwargs)
        results |= {node: name for node, name in _results(call, made.results) if name in known}
    graph.output(tuple(results))
    if not results:
        return None
    compared = {node.name: [name] for node, name in results.items()}
    return WholeOperators(GraphModule({}, graph), compared)


def _results(call: Node, results: object) -> Iterator[tuple[Node, str]]:
    """Yield a node for each traced result of a call, with the node of the traced graph."""
    if isinstance(results, TracedValue):
        yield call, results.node
    elif isinstance(results, (list, tuple)):
        for index, result in enumerate(cast("tuple[object, ...]", results)):
            if isinstance(result, TracedValue):
                yield call.graph.call_function(getitem, (call, index)), result.node


def is_repeatable(operator: Callable[..., object]) -> bool:
    """Return whether an operator gives the same values again for the same operands."""
    tags = getattr(operator, "tags", ())
    name = str(operator).partition(".")[2]
    return torch.Tag.nondeterministic_seeded not in tags and "empty" not in name


def _names(values: object) -> Iterator[str]:
    for leaf in graphs.tree_leaves(values):
        if isinstance(leaf, TracedValue):
            yield leaf.node
