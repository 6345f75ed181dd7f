"""The inputs of a case: numbers as JSON, tensors stored or as recipes, one per placeholder.

Weights and large activations may be confidential, so they are stored on request only.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.fx import GraphModule

from ctk.compiler.errors import CaseError, NotHeld, count_of
from ctk.compiler.fx.walk import input_names
from ctk.compiler.torch_compat.fake import fake_tensors as fake
from ctk.toolkit.case.case import Case
from ctk.toolkit.case.formats.scalars import size_hint
from ctk.toolkit.case.formats.schema import document
from ctk.toolkit.case.formats.strict_json import look_up
from ctk.toolkit.case.formats.tensor_index import TensorIndex
from ctk.toolkit.case.formats.tensors import Keep, pack_tensors, unpack_tensors
from ctk.toolkit.case.graphs.argument_json import Decoder, encode_value
from ctk.toolkit.case.graphs.graph_json import constants_of
from ctk.toolkit.case.graphs.value_types import symbol_hints

SMALL_INPUT = 64
"""Activations of up to so many elements are stored whole in recipe mode; larger ones may be user
data and become synthetic."""

SMALL_BUFFER = 4096
"""Buffers and constants of up to so many elements are stored whole: tables, masks, statistics."""

_WHERE = "inputs.json"


def choose_stored_values(case: Case, inputs: str) -> Keep:
    """Return which values are stored with `inputs` as in `store.save_case`."""
    buffers = {name for name, role in case.roles.items() if role.kind == "buffer"}
    constants = constants_of(case.graph).keys()

    def keep(name: str, tensor: Tensor, count: int) -> bool:
        if inputs != "recipe" or name in case.synthetic:
            return inputs != "none"
        limit = SMALL_BUFFER if name in buffers or name in constants else SMALL_INPUT
        return count <= limit and not isinstance(tensor, torch.nn.Parameter)

    return keep


def named_inputs(case: Case) -> dict[str, object]:
    """Return the inputs of a case by the names of their placeholders, in order.

    Raises:
        CaseError: Inputs and placeholders differ in number.
    """
    names = input_names(case.graph)
    if len(names) != len(case.inputs):
        inputs = count_of(len(case.inputs), "input")
        raise CaseError(
            f"case {case.name} has {inputs} for {count_of(len(names), 'placeholder')} "
            f"({', '.join(names)}); give one value per placeholder, or capture it again"
        )
    return dict(zip(names, case.inputs, strict=True))


@document
@dataclass(frozen=True, slots=True)
class Inputs:
    """The document `inputs.json`.

    Attributes:
        values: The inputs other than tensors, by name, encoded as arguments of a graph.
    """

    names: tuple[str, ...]
    values: Mapping[str, object]
    tensors: TensorIndex


def pack_inputs(
    case: Case, *, keep: Keep, measure: bool, in_place: bool = False
) -> tuple[Inputs, dict[str, Tensor]]:
    """Return the inputs of a case, and the values of their tensors (`pack_tensors`).

    Raises:
        CaseError: An input cannot be kept, or there is not one per placeholder.
    """
    named = named_inputs(case)
    tensors = {name: value for name, value in named.items() if isinstance(value, Tensor)}
    packed = pack_tensors(tensors, keep=keep, measure=measure, in_place=in_place)
    values = {name: _number(named[name], name) for name in named if name not in tensors}
    return Inputs(tuple(named), values, packed.index), packed.arrays


def _number(value: object, name: str) -> object:
    if isinstance(value, torch.SymInt | torch.SymFloat | torch.SymBool):
        symbol, value = fake.symbol_and_hint(value)
        if value is None:
            raise NotHeld(f"input {name}: {symbol} depends on data, so it has no value to save")
    return encode_value(value, f"input {name}")


def unpack_inputs(
    inputs: Inputs, arrays: Mapping[str, Tensor], graph: GraphModule, device: str | None = None
) -> tuple[object, ...]:
    """Return the inputs of a graph.

    Args:
        inputs: Of `pack_inputs`, possibly untrusted.
        device: Put tensors there instead of on the recorded device.

    Raises:
        CaseError: A value is malformed, or the names are not those of the placeholders.
    """
    wanted = input_names(graph)
    if list(inputs.names) != wanted:
        raise CaseError(
            f"{_WHERE}: inputs {list(inputs.names[:8])} are not the graph's {wanted[:8]}"
        )
    tensors = unpack_tensors(inputs.tensors, arrays, device=device, where=_WHERE)
    decoder = Decoder({}, device=device)
    values = {
        name: decoder.decode(value, f"{_WHERE}: {name}") for name, value in inputs.values.items()
    }
    by_name: Mapping[str, object] = {**tensors, **values}
    return tuple(look_up(by_name, each, f"{_WHERE}: {each!r} has no value") for each in wanted)


def symbols_of(case: Case) -> dict[str, object]:
    """Return the hint of each symbol; inputs take precedence over the graph's first capture."""
    symbols = symbol_hints(case.graph)
    placeholders = case.graph.graph.find_nodes(op="placeholder")
    for node, value in zip(placeholders, case.inputs, strict=True):
        sizes = value.shape if isinstance(value, Tensor) else ()
        for symbol, size in zip(case.dynamic.get(node.name, ()), sizes, strict=False):
            if symbol is not None:
                symbols[symbol] = size_hint(size)
    return symbols
