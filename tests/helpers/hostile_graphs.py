"""Hostile graphs as JSON, without a folder: small enough that a test can try thousands."""

import copy
import functools
import json
from collections.abc import Callable
from typing import Any

import torch

from ctk.compiler.errors import CtkError
from ctk.toolkit.case.formats.strict_json import dump_json, parse_json
from ctk.toolkit.case.graphs.graph_json import graph_from_json, graph_to_json
from tests.helpers.case_zoo import capture, nested_cond

Json = dict[str, Any]


@functools.cache
def _conditional() -> tuple[str, Json]:
    (case,) = capture(nested_cond, torch.randn(3))
    data, arrays = graph_to_json(case.graph)
    return dump_json(data), arrays


def conditional() -> Json:
    """Return the JSON of a graph with nested conds; to be changed."""
    return json.loads(_conditional()[0])


def node(op: str, name: str, target: str, *args: object, **more: object) -> Json:
    """Return a node as JSON; `{"node": name}` among the arguments is another node."""
    return {"op": op, "name": name, "target": target, "args": list(args), **more}


def ref(name: str) -> Json:
    return {"node": name}


def graph(*nodes: Json, values: Json | None = None, subgraphs: Json | None = None) -> Json:
    """Return a graph of one input `x` and these nodes; the last one is its result."""
    listed = [node("placeholder", "x", "x"), *nodes]
    listed.append(node("output", "output", "output", ref(listed[-1]["name"])))
    constants: Json = {"entries": {}, "same": {}, "storages": {}}
    return {
        "class": "Hostile",
        "nodes": listed,
        "subgraphs": subgraphs or {},
        "values": values or {},
        "constants": constants,
    }


def identity() -> Json:
    """Return a sub-graph of one input."""
    data = graph()
    del data["constants"]
    return data


def calling(target: str, *args: object, **more: object) -> Json:
    """Return a graph with one call of a function."""
    return graph(node("call_function", "call", target, *args, **more))


def load(data: Json, *, trust: bool = False) -> torch.fx.GraphModule:
    """Read a graph as `load_case` does: through text."""
    return graph_from_json(parse_json(json.dumps(data), where="graph.json"), {}, trust=trust)


def changed(change: Callable[[Json], object]) -> Json:
    """Return `conditional` with a change."""
    data = copy.deepcopy(conditional())
    change(data)
    return data


def refusal(data: Json) -> str:
    """Return what ctk says against a graph; an empty text when it takes it."""
    try:
        load(data)
    except CtkError as error:
        return str(error)
    return ""
