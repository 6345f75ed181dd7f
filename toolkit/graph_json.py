"""FX graphs as JSON and back: the same nodes, names, order, arguments, sub-graphs and constants.

A graph is `{"class": name, "nodes": [...], "subgraphs": {attribute: graph}, "values": {...}}`; the
outermost one also holds `"constants"` and `"storages"` (see `tensors`), for all sub-graphs, under
qualified names (`cond_true_0.weight`). Functions are named (see `graph_targets`), never pickled.

What it does not do: leaf modules (`call_module` of an `nn.Linear`; Dynamo makes none), pytree
calling conventions (the graph's placeholders are its flat inputs), stack traces and other metadata.
"""

import keyword
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any, cast

import torch
from torch import Tensor
from torch.fx import Graph, GraphModule, Node

from compiler.errors import CaseError, nearest
from toolkit.graph_allowed import check_attribute, check_method
from toolkit.graph_meta import META_KEY, check_value_json, node_value_json
from toolkit.graph_targets import target_from_name, target_to_name
from toolkit.json_values import Decoder, encode_value
from toolkit.strict_json import Json, expect, items, member, optional
from toolkit.tensors import Keep, keep_all, pack_tensors, unpack_tensors

_TYPES: Mapping[str, Any] = {
    "Tensor": torch.Tensor,
    "Parameter": torch.nn.Parameter,
    "SymInt": torch.SymInt,
    "SymFloat": torch.SymFloat,
    "SymBool": torch.SymBool,
    "int": int,
    "float": float,
    "bool": bool,
}
"""The annotations of placeholders that are kept; they have no effect on a run."""


# --- writing ------------------------------------------------------------------------------------


def graph_to_json(
    gm: GraphModule, *, keep: Keep = keep_all, measure: bool = True
) -> tuple[Json, dict[str, Tensor]]:
    """Return a graph as JSON, and the values of its constants.

    Args:
        gm: A captured graph; only read.
        keep: Which constants to store by value; the others become recipes.
        measure: Whether recipes follow the statistics of the values.

    Returns:
        The JSON, and arrays for a safetensors file.

    Raises:
        CaseError: A node or constant cannot be kept; the message names it.
    """
    data = _write_graph(gm, where="graph")
    packed = pack_tensors(constants_of(gm), keep=keep, measure=measure)
    return {**data, "constants": packed.entries, "storages": packed.storages}, packed.arrays


def constants_of(gm: GraphModule) -> dict[str, Tensor]:
    """Return the tensors that a graph and its sub-graphs read, by qualified name."""
    found: dict[str, Tensor] = {}
    for path, value in _attributes(gm, prefix=""):
        if isinstance(value, Tensor):
            found[path] = value
        elif isinstance(value, GraphModule):
            found |= {f"{path}.{name}": tensor for name, tensor in constants_of(value).items()}
    return found


def subgraphs_of(gm: GraphModule) -> dict[str, GraphModule]:
    """Return the sub-graphs that a graph uses, by attribute name, in order of first use."""
    found = _attributes(gm, prefix="")
    return {path: value for path, value in found if isinstance(value, GraphModule)}


def _attributes(gm: GraphModule, prefix: str) -> Iterator[tuple[str, object]]:
    """Yield each attribute that a node reads or calls, once, in order."""
    targets = (str(node.target) for node in gm.graph.nodes if node.op in ("get_attr", "call_module"))
    for target in dict.fromkeys(targets):
        yield prefix + target, _read_attribute(gm, target)


def _read_attribute(gm: GraphModule, target: str) -> object:
    value: object = gm
    for part in target.split("."):
        if not hasattr(value, part):
            raise CaseError(f"the graph reads attribute {target!r}, which its module does not have")
        value = getattr(value, part)
    return value


def _write_graph(gm: GraphModule, where: str) -> Json:
    subgraphs: Json = {}
    values: Json = {}
    for path, value in _attributes(gm, prefix=""):
        if isinstance(value, GraphModule):
            subgraphs[path] = _write_graph(value, f"{where}.{path}")
        elif isinstance(value, torch.nn.Module):
            raise CaseError(
                f"{where}: module {path!r} ({type(value).__name__}) is called as a whole; capture "
                "the program with torch.compile or torch.export, which see through modules"
            )
        elif not isinstance(value, Tensor):
            values[path] = encode_value(value, f"{where}: attribute {path}")
    nodes = [_write_node(node, where) for node in gm.graph.nodes]
    return {
        "class": type(gm).__name__.removesuffix("Impl"),
        "nodes": nodes,
        "subgraphs": subgraphs,
        "values": values,
    }


def _write_node(node: Node, where: str) -> Json:
    place = f"{where}: node {node.name}"
    data: Json = {"op": node.op, "name": _check_name(node.name, place)}
    data["target"] = _write_target(node, place)
    if node.args:
        args = enumerate(node.args)
        data["args"] = [encode_value(value, f"{place}: argument {index}") for index, value in args]
    if node.kwargs:
        pairs = node.kwargs.items()
        data["kwargs"] = {
            key: encode_value(value, f"{place}: argument {key!r}") for key, value in pairs
        }
    kind = next((name for name, kind in _TYPES.items() if kind is node.type), None)
    if node.op == "placeholder" and kind:
        data["type"] = kind
    value = node_value_json(node)
    return data if value is None else {**data, "value": value}


def _write_target(node: Node, where: str) -> str:
    if node.op != "call_function":
        return _check_call(node.op, str(node.target), node.args, where)
    try:
        name = target_to_name(node.target)
    except CaseError as error:
        raise CaseError(f"{where}: {error}") from error
    return _check_call(node.op, name, node.args, where)


# --- reading ------------------------------------------------------------------------------------


def graph_from_json(
    data: Mapping[str, object],
    tensors: Mapping[str, Tensor],
    *,
    allow_imports: Collection[str] = (),
    device: str | None = None,
) -> GraphModule:
    """Build a graph from JSON that may come from a stranger.

    Args:
        data: JSON of `graph_to_json`.
        tensors: The arrays that it returned, perhaps read from a file.
        allow_imports: Modules of which functions may be called; they are already imported.
        device: Put constants and every device that an argument names there instead.

    Raises:
        CaseError: It is malformed, or names something that a graph may not call.
    """
    entries = member(data, "constants", dict, "graph")
    checked = {name: expect(entry, dict, f"constants.{name}") for name, entry in entries.items()}
    storages = member(data, "storages", dict, "graph")
    constants = unpack_tensors(checked, storages, tensors, device=device, where="graph: constant")

    def resolve(name: str) -> Any:
        return target_from_name(name, allow_imports=allow_imports)

    try:
        return _read_graph(data, constants, Reader(resolve, device), "graph", "")
    except RecursionError as error:
        raise CaseError("graph: values or sub-graphs are nested too deeply to be real") from error


Resolve = Callable[[str], Any]


class Reader(tuple[Resolve, str | None]):
    """placeholder"""
