"""Run a graph as it stands, its operators one after the other, as vetoed kernels do.

Some nodes of a graph run in eager as the module that `fx/extract.py` makes of them. A graph is
stored as a schedule of its calls (`graph_data`), and becomes a graph again (`stored_graph`).
"""

import operator
from collections.abc import Mapping, Sequence
from typing import Any

from torch.fx import Graph, GraphModule, Node

from ctk.compiler.codegen.base import BoxedCallable, as_boxed, guard_count
from ctk.compiler.errors import MALFORMED, ArtifactError
from ctk.compiler.fx.walk import fetch
from ctk.compiler.records import Json
from ctk.compiler.runtime.compiled_graph import CompiledGraph
from ctk.compiler.runtime.schedule_json import schedule_of
from ctk.compiler.runtime.steps import Argument, Call, Ref, Schedule, Step, map_leaves
from ctk.compiler.runtime.stored_kernels import Blobs
from ctk.compiler.runtime.tensors import tensors_of


def eager_compile(gm: GraphModule, example_inputs: Sequence[object] = ()) -> BoxedCallable:
    """Return a boxed callable that runs `gm` by FX's generated code.

    FX drops each value after its last use; the inputs are read from the list and the list is
    emptied first, so they die as early. The attributes of `gm` (constants, nested graphs) are
    shared, not copied.
    """
    boxed = GraphModule(gm, _boxed_graph(gm.graph))
    run = guard_count(boxed.forward, len(gm.graph.find_nodes(op="placeholder")))
    return as_boxed(run, lambda: boxed.code, lambda: graph_data(gm))


def graph_data(gm: GraphModule) -> CompiledGraph:
    """Return a graph as data that runs it as it stands.

    Raises:
        ArtifactError: It calls a method or a module.
    """
    schedule = plain_schedule(gm.graph)
    return CompiledGraph(schedule, constants_data(gm, schedule), "eager", [])


def constants_data(
    gm: GraphModule, schedule: Schedule, compiled: Mapping[str, BoxedCallable] | None = None
) -> dict[str, object]:
    """Return the values of a schedule's constants, graphs as data.

    Args:
        compiled: Compiled graphs among the constants, by name; the others are attributes of `gm`.

    Raises:
        ArtifactError: A graph calls a method or a module.
    """
    found: dict[str, object] = {}
    for name in schedule.constants.values():
        if compiled is not None and name in compiled:
            found[name] = compiled[name].ctk_data()
        else:
            value = fetch(gm, name)
            found[name] = graph_data(value) if isinstance(value, GraphModule) else value
    return found


def plain_schedule(graph: Graph) -> Schedule:
    """Return a graph as a schedule of the calls of its nodes.

    Raises:
        ArtifactError: It calls a method or a module.
    """
    inputs: list[str] = []
    constants: dict[str, str] = {}
    steps: list[Step] = []
    result: Argument = None
    for node in graph.nodes:
        if node.op == "placeholder":
            inputs.append(node.name)
        elif node.op == "get_attr":
            constants[node.name] = node.target
        elif node.op == "output":
            result = map_leaves(node.args[0], _ref)
        elif node.op == "call_function":
            args, kwargs = map_leaves(node.args, _ref), map_leaves(node.kwargs, _ref)
            steps.append(Call(node.name, node.target, args, kwargs))
        else:
            raise ArtifactError(f"{node.name} is a {node.op}: it cannot be stored")
    return Schedule(tuple(inputs), tuple(steps), result, constants)


def stored_graph(data: Json, blobs: Blobs) -> GraphModule:
    """Return the graph of `graph_data(...).stored(...)`; it has no types.

    Raises:
        ArtifactError: It is malformed, or needs an operator that this process lacks.
    """
    try:
        schedule = schedule_of(data["schedule"])
        root: dict[str, Any] = {**tensors_of(data["constants"], blobs)}
        root |= {name: stored_graph(each, blobs) for name, each in data["graphs"].items()}
        return GraphModule(root, _graph_of(schedule))
    except MALFORMED as error:
        raise ArtifactError(f"a stored graph is malformed: {error!r}") from error


def _graph_of(schedule: Schedule) -> Graph:
    """Return the graph of a plain schedule; a step other than a call raises `TypeError`."""
    graph = Graph()
    values = {name: graph.placeholder(name) for name in schedule.inputs}
    values |= {name: graph.get_attr(target) for name, target in schedule.constants.items()}

    def node(value: Argument) -> Argument:
        return values[value.name] if isinstance(value, Ref) else value

    for step in schedule.steps:
        if not isinstance(step, Call):
            raise TypeError(step)
        args, kwargs = map_leaves(step.args, node), map_leaves(step.kwargs, node)
        values[step.name] = graph.create_node(
            "call_function", step.function, args, kwargs, name=step.name
        )
    graph.output(map_leaves(schedule.result, node))
    return graph


def _ref(value: Argument) -> Argument:
    return Ref(value.name) if isinstance(value, Node) else value


def _boxed_graph(graph: Graph) -> Graph:
    """Return a copy of a graph with one placeholder, the list of inputs, which it empties."""
    copy = Graph()
    inputs = copy.placeholder("inputs")
    placeholders = graph.find_nodes(op="placeholder")
    values: dict[Node, Node] = {}
    for index, node in enumerate(placeholders):
        read = (operator.getitem, (inputs, index))
        values[node] = copy.create_node("call_function", *read, name=node.name)
    if placeholders:
        copy.call_method("clear", (inputs,))
    for node in graph.nodes:
        if node.op != "placeholder":
            values[node] = copy.node_copy(node, lambda old: values[old])
    return copy
