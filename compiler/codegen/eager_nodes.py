"""Run a graph as it stands, its operators one after the other, as vetoed kernels do.

Some nodes of a graph run in eager as the module that `fx/extract.py` makes of them.
"""

import operator
from collections.abc import Sequence

from torch.fx import Graph, GraphModule, Node

from ctk.compiler.codegen.base import BoxedCallable, as_boxed, guard_count
from ctk.compiler.errors import ArtifactError
from ctk.compiler.fx.walk import fetch
from ctk.compiler.runtime.compiled_graph import CompiledGraph
from ctk.compiler.runtime.steps import Argument, Call, Ref, Schedule, Step, map_leaves


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


def constants_data(gm: GraphModule, schedule: Schedule) -> dict[str, object]:
    """Return the values of a schedule's constants, graphs as data.

    Raises:
        ArtifactError: A graph calls a method or a module.
    """
    values = {name: fetch(gm, name) for name in schedule.constants.values()}
    return {
        name: graph_data(each) if isinstance(each, GraphModule) else each
        for name, each in values.items()
    }


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
