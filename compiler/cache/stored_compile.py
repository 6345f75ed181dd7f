"""One compile as data: the compiled graphs, and the wrappers of AOTAutograd around them.

    data, blobs = stored_form(recorded, made)
    run = load_stored(data, blobs, graph)                    in another process, without a trace

Entries of the cache and saved functions (`saved_function.py`) hold it.
"""

import json
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from torch.fx import GraphModule

from ctk.compiler.artifacts.container import Bytes
from ctk.compiler.codegen.base import BoxedCallable, as_boxed, guard_count
from ctk.compiler.codegen.eager_nodes import graph_data, stored_graph
from ctk.compiler.dispatch.autograd import resume
from ctk.compiler.errors import ArtifactError, Uncacheable
from ctk.compiler.observe import Stage
from ctk.compiler.runtime.compiled_graph import CompiledGraph, load_graph
from ctk.compiler.torch_compat.aot import aot_runtime

Run = Callable[..., Any]
Members = Mapping[str, Any]

GRAPH = "graph.json"
"""The name of the member with the data."""

_FORMAT = 1
_BACKWARD = "backward-graph"


@dataclass(frozen=True, slots=True)
class Made:
    """The results of a compile besides its callable.

    Attributes:
        traced: The captured graph as AOTAutograd traced it.
        failures: Steps that failed, and left the graph unchanged.
    """

    traced: GraphModule
    lowered: Mapping[Stage, BoxedCallable]
    failures: Sequence[str]


def stored_form(
    recorded: aot_runtime.Recorded,
    made: Made,
    require: Callable[[CompiledGraph, Stage], None] = lambda graph, stage: None,
) -> tuple[Any, dict[str, Bytes]]:
    """Return the data of a compile, and its binary members.

    Args:
        require: Raises for a graph that is not to be stored.

    Raises:
        Uncacheable: A step of it failed.
        ArtifactError: A compiled graph cannot be stored.
        NoDataForm: The wrappers cannot be stored.
    """
    for failure in made.failures:
        raise Uncacheable(failure)
    wrappers = recorded.as_json(made.traced)
    blobs: dict[str, Bytes] = {}
    graphs: dict[str, Any] = {"forward": None, "backward": None}
    for stage, compiled in made.lowered.items():
        graph = compiled.ctk_data()
        require(graph, stage)
        graphs[stage], own = graph.stored(f"{stage}/")
        blobs.update(own)
    backward = recorded.backward_graph()
    if backward is not None:
        data, own = graph_data(backward).stored(f"{_BACKWARD}/")
        blobs |= {_BACKWARD: zlib.compress(json.dumps(data).encode(), level=1), **own}
    return {"wrappers": wrappers, **graphs}, blobs


def json_of(data: Mapping[str, Any]) -> bytes:
    """Return the text of the member `GRAPH`."""
    return json.dumps({"format": _FORMAT, **data}).encode()


def read_json(members: Members) -> Any:
    """Return the data of the member `GRAPH`.

    Raises:
        ArtifactError: It has another format.
    """
    data = json.loads(bytes(members[GRAPH]))
    if data["format"] != _FORMAT:
        raise ArtifactError("it has another format")
    return data


def load_stored(data: Any, members: Members, graph: GraphModule) -> Run:
    """Return the callable of a stored compile; its result is flat.

    Args:
        graph: The captured graph, with its tensors; only its inputs are read.
    """
    forward = _callable_of(data["forward"], members, "forward")
    stored = data["backward"]
    backward = None if stored is None else _callable_of(stored, members, "backward")
    return resume(data["wrappers"], graph, forward, backward, partial(_backward_graph, members))


def _callable_of(data: Any, members: Members, name: str) -> BoxedCallable:
    code = load_graph(data, members, name)
    run = guard_count(code.function, len(data["schedule"]["inputs"]))
    return as_boxed(run, lambda: code.text)


def _backward_graph(members: Members) -> GraphModule:
    """Return the backward graph before its passes, which compiled autograd takes into its own."""
    data = json.loads(zlib.decompress(members[_BACKWARD]))
    return stored_graph(data, members)
