"""The input guard of an entry point as JSON, and back."""

from __future__ import annotations

from ctk.compiler.errors import MALFORMED, ArtifactError
from ctk.compiler.packages.input_guard import (
    RELATIONS,
    Condition,
    Dimension,
    FixedInput,
    InputGuard,
    NumberInput,
    TensorInput,
)
from ctk.compiler.records import (
    FLAG,
    INTEGER,
    TEXT,
    Codec,
    Json,
    Malformed,
    mapping,
    optional,
    record,
    renamed,
    row,
    sequence,
    union,
)
from ctk.compiler.runtime.values import DEVICE, DTYPE, SIZE, VALUE


def guard_json(guard: InputGuard) -> Json:
    """Return an input guard as JSON.

    Raises:
        ArtifactError: A fixed value cannot be stored.
    """
    return _GUARD.write(guard)


def guard_of(data: Json) -> InputGuard:
    """Return the input guard of `guard_json`'s JSON.

    Raises:
        ArtifactError: It is malformed.
    """
    try:
        guard = _GUARD.read(data)
        if guard.unknown_sizes():
            raise Malformed("no input determines a size")
        return guard
    except MALFORMED as error:
        raise ArtifactError(f"the inputs of an entry point are malformed: {error!r}") from error


def _relation(text: Json) -> str:
    if text not in RELATIONS:
        raise Malformed(f"{text!r} is not a relation")
    return text


_TENSOR = record(
    TensorInput,
    {"kind": "tensor"},
    name=TEXT,
    dtype=DTYPE,
    device=DEVICE,
    shape=sequence(SIZE),
    strides=sequence(SIZE),
    is_written=renamed("written", FLAG),
)
_INPUT = union(
    lambda data: data["kind"],
    {
        "int": (NumberInput, record(NumberInput, {"kind": "int"}, name=TEXT, size=SIZE)),
        "fixed": (FixedInput, record(FixedInput, {"kind": "fixed"}, name=TEXT, value=VALUE)),
        "tensor": (TensorInput, _TENSOR),
    },
)
_GUARD = record(
    InputGuard,
    inputs=sequence(_INPUT),
    dimensions=mapping(record(Dimension, name=TEXT, low=INTEGER, high=optional(INTEGER))),
    conditions=sequence(row(Condition, left=SIZE, relation=Codec(str, _relation), right=SIZE)),
)
