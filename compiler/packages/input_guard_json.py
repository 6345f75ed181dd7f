"""The door of an entry point as JSON, and back."""

from __future__ import annotations

from ctk.compiler.errors import MALFORMED, ArtifactError
from ctk.compiler.packages.input_guard import (
    RELATIONS,
    Condition,
    Dimension,
    Door,
    FixedInput,
    Input,
    NumberInput,
    TensorInput,
)
from ctk.compiler.runtime.values import JSON, size_json, size_of, value_json, value_of


def door_json(door: Door) -> JSON:
    """Return a door as JSON.

    Raises:
        ArtifactError: A fixed value cannot be stored.
    """
    return {
        "inputs": [_input_json(each) for each in door.inputs],
        "dimensions": {
            symbol: {"name": each.name, "low": each.low, "high": each.high}
            for symbol, each in door.dimensions.items()
        },
        "conditions": [
            [size_json(each.left), each.relation, size_json(each.right)] for each in door.conditions
        ],
    }


def door_of(data: JSON) -> Door:
    """Return the door of `door_json`'s JSON.

    Raises:
        ArtifactError: It is malformed.
    """
    try:
        dimensions = {
            str(symbol): Dimension(str(each["name"]), each["low"], each["high"])
            for symbol, each in data["dimensions"].items()
        }
        conditions = tuple(
            Condition(size_of(left), relation, size_of(right))
            for left, relation, right in data["conditions"]
        )
        if not RELATIONS.keys() >= {each.relation for each in conditions}:
            raise ValueError("an unknown relation")
        door = Door(tuple(map(_input_of, data["inputs"])), dimensions, conditions)
        if door.untold():
            raise ValueError("no input tells a size")
        return door
    except MALFORMED as error:
        raise ArtifactError(f"the inputs of an entry point are malformed: {error!r}") from error


def _input_json(each: Input) -> JSON:
    if isinstance(each, NumberInput):
        return {"kind": "int", "name": each.name, "size": size_json(each.size)}
    if isinstance(each, FixedInput):
        return {"kind": "fixed", "name": each.name, "value": value_json(each.value)}
    return {
        "kind": "tensor",
        "name": each.name,
        "dtype": str(each.dtype).removeprefix("torch."),
        "device": str(each.device),
        "shape": [size_json(size) for size in each.shape],
        "strides": [size_json(stride) for stride in each.strides],
        "written": each.is_written,
    }


def _input_of(data: JSON) -> Input:
    name = str(data["name"])
    if data["kind"] == "int":
        return NumberInput(name, size_of(data["size"]))
    if data["kind"] == "fixed":
        return FixedInput(name, value_of(data["value"]))
    shape, strides = (tuple(map(size_of, data[each])) for each in ("shape", "strides"))
    dtype, device = (value_of({each: data[each]}) for each in ("dtype", "device"))
    return TensorInput(name, dtype, device, shape, strides, bool(data["written"]))
