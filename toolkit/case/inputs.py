"""The inputs of a case: numbers as JSON, tensors stored or as recipes, one per placeholder.

What is stored decides what leaks: weights and large activations are never stored unless asked for.
What it does not do: files (`store`).
"""

from collections.abc import Mapping

import torch
from torch import Tensor
from torch.fx import GraphModule, Node

from ctk.compiler import torch_compat
from ctk.compiler.errors import CaseError
from ctk.toolkit.case.case import Case
from ctk.toolkit.formats.strict_json import Json, expect, items, member
from ctk.toolkit.formats.tensors import Keep, Packed, pack_tensors, unpack_tensors
from ctk.toolkit.graphs.argument_json import Decoder, encode_value
from ctk.toolkit.graphs.graph_json import constants_of
from ctk.toolkit.graphs.value_types import is_buffer

SMALL_INPUT = 64
"""Activations of up to so many elements are stored whole in recipe mode; larger ones may be user
data, and become synthetic."""

SMALL_BUFFER = 4096
"""Buffers and constants of up to so many elements are stored whole: tables, masks, statistics."""

_WHERE = "inputs.json"


def storing(case: Case, inputs: str) -> Keep:
    """Return which values are stored with `inputs` as in `store.save_case`."""
    buffers = {node.name for node in _placeholders(case) if is_buffer(node)}
    constants = constants_of(case.graph).keys()

    def keep(name: str, tensor: Tensor, count: int) -> bool:
        if inputs != "recipe" or name in case.synthetic:
            return inputs != "none"
        limit = SMALL_BUFFER if name in buffers or name in constants else SMALL_INPUT
        return count <= limit and not isinstance(tensor, torch.nn.Parameter)

    return keep


def _placeholders(case: Case) -> list[Node]:
    return list(case.graph.graph.find_nodes(op="placeholder"))


def inputs_to_json(case: Case, *, keep: Keep, measure: bool) -> tuple[Json, Packed]:
    """Return the inputs of a case as JSON, and their tensors taken apart.

    Raises:
        CaseError: An input cannot be kept, or there is not one per placeholder.
    """
    nodes = _placeholders(case)
    if len(nodes) != len(case.inputs):
        raise CaseError(
            f"case {case.name}: the graph has {len(nodes)} placeholders, but there are "
            f"{len(case.inputs)} inputs; give one value per placeholder"
        )
    named = {node.name: value for node, value in zip(nodes, case.inputs, strict=True)}
    tensors = {name: value for name, value in named.items() if isinstance(value, Tensor)}
    packed = pack_tensors(tensors, keep=keep, measure=measure)
    values = [
        {"name": name} | ({} if name in tensors else {"value": _number(value, name)})
        for name, value in named.items()
    ]
    return {"inputs": values, "tensors": packed.entries, "storages": packed.storages}, packed


def _number(value: object, name: str) -> object:
    if isinstance(value, torch.SymInt | torch.SymFloat | torch.SymBool):
        symbol, value = torch_compat.symbol_and_hint(value)
        if value is None:
            raise CaseError(f"input {name}: {symbol} depends on data, so it has no value to save")
    return encode_value(value, f"input {name}")


def inputs_from_json(
    data: Json, arrays: Mapping[str, Tensor], graph: GraphModule, device: str | None = None
) -> tuple[object, ...]:
    """Return the inputs of a graph.

    Args:
        data: JSON of `inputs_to_json`, perhaps from a stranger.
        arrays: Stored values.
        graph: The graph whose placeholders they are for.
        device: Put tensors there instead of on the recorded device.

    Raises:
        CaseError: Something is malformed, or the names are not those of the placeholders.
    """
    listed = items(data, "inputs", dict, _WHERE)
    names = [member(each, "name", str, _WHERE) for each in listed]
    wanted = [node.name for node in graph.graph.find_nodes(op="placeholder")]
    if names != wanted:
        raise CaseError(f"{_WHERE}: inputs {names[:8]} are not the graph's {wanted[:8]}")
    entries = member(data, "tensors", dict, _WHERE)
    tensors = unpack_tensors(
        {name: expect(entry, dict, f"{_WHERE}: {name}") for name, entry in entries.items()},
        member(data, "storages", dict, _WHERE),
        arrays,
        device=device,
        where=_WHERE,
    )
    decoder = Decoder({}, _no_function, device)
    return tuple(
        decoder.decode(each["value"], f"{_WHERE}: {name}")
        if "value" in each
        else member(tensors, name, object, _WHERE)
        for name, each in zip(names, listed, strict=True)
    )


def _no_function(name: str) -> object:
    raise CaseError(f"{_WHERE}: an input cannot be the function {name!r}")
