"""The description of a package for people, also for another machine: nothing is loaded or run.

A size that varies has the name of its argument.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ctk.compiler.artifacts.machine import refuse_other
from ctk.compiler.errors import MALFORMED, ArtifactError, ContainerError
from ctk.compiler.packages.input_guard import (
    Dimension,
    FixedInput,
    Input,
    InputGuard,
    NumberInput,
    guard_of,
)
from ctk.compiler.packages.package import manifest_of, open_package
from ctk.compiler.records import Json, torch_word
from ctk.compiler.runtime.values import size_of, value_of
from ctk.compiler.torch_compat.fx import graphs


@dataclass(frozen=True, slots=True)
class ValueDescription:
    """An argument, a result or a weight.

    Attributes:
        name: Its name in the program; of a result its position: `['loss']`.
        dtype: `float32`; `int` for a number; empty for a fixed value.
        shape: `[batch, 16]`; of a fixed value the value.
    """

    name: str
    dtype: str
    shape: str
    device: str = ""
    is_written: bool = False


@dataclass(frozen=True, slots=True)
class EntryDescription:
    """An entry point.

    Attributes:
        why_not_c: Why C programs cannot call it; empty if they can.
    """

    name: str
    inputs: Sequence[ValueDescription]
    keywords: Sequence[str]
    sizes: Sequence[Dimension]
    outputs: Sequence[ValueDescription]
    weights: Sequence[str]
    why_not_c: str


@dataclass(frozen=True, slots=True)
class Description:
    """A package.

    Attributes:
        digest: SHA-256 of its content.
        weights_left_out: Weights that must be bound.
        why_not_here: Why it does not run on this machine; empty if it does.
    """

    path: Path
    digest: str
    nbytes: int
    entries: Sequence[EntryDescription]
    weights: Sequence[ValueDescription]
    weights_left_out: Sequence[ValueDescription]
    weights_nbytes: int
    machine: Mapping[str, Any]
    made_by: Mapping[str, str]
    why_not_here: str


def describe(path: str | Path) -> Description:
    """Return the description of a package; all of the file is checked.

    Raises:
        ContainerError: It is not a package, is damaged, or cannot be read.
        ArtifactError: It is of another ctk.
    """
    container = open_package(path)
    manifest = manifest_of(container, to_run=False)
    kept = manifest["weights"]
    try:
        return Description(
            container.path,
            container.digest,
            container.path.stat().st_size,
            [
                _entry(name, data, manifest["c_api"].get(name, ""))
                for name, data in manifest["entries"].items()
            ],
            [_weight(*item) for item in kept.items()],
            [_weight(*item) for item in manifest["weights_left_out"].items()],
            sum(len(container.members[blob]) for blob in {row["blob"] for row in kept.values()}),
            manifest["machine"],
            manifest["made_by"],
            _why_not_here(manifest["machine"], container.path.name),
        )
    except MALFORMED as error:
        raise ContainerError(f"{path} is malformed: {error!r}; compile it again") from error


def _entry(name: str, data: Json, why_not_c: str) -> EntryDescription:
    guard = guard_of(data["door"])
    places = _places(data["out_spec"], len(data["results"]))
    return EntryDescription(
        name,
        inputs=[_input(each, guard) for each in guard.inputs],
        keywords=_keywords(data["in_spec"]),
        sizes=list(guard.dimensions.values()),
        outputs=[_output(*each, guard) for each in zip(places, data["results"], strict=True)],
        weights=tuple(data["weights"]),
        why_not_c=why_not_c,
    )


def _input(each: Input, guard: InputGuard) -> ValueDescription:
    if isinstance(each, FixedInput):
        return ValueDescription(each.name, "", repr(each.value))
    if isinstance(each, NumberInput):
        return ValueDescription(each.name, "int", guard.size_text(each.size))
    shape, device = guard.text(each.shape), str(each.device)
    return ValueDescription(each.name, torch_word(each.dtype), shape, device, each.is_written)


def _output(place: str, row: Json, guard: InputGuard) -> ValueDescription:
    if "fixed" in row:
        return ValueDescription(place, "", repr(value_of(row["fixed"])))
    if "dtype" not in row:
        return ValueDescription(place, "int", _size(row["size"], guard))
    sizes = ", ".join(_size(each, guard) for each in row["shape"])
    return ValueDescription(place, row["dtype"], f"[{sizes}]", row["device"])


def _size(size: Json, guard: InputGuard) -> str:
    return "?" if size is None else guard.size_text(size_of(size))


def _places(spec: str, number: int) -> list[str]:
    """Return the position of each result in the nested result; else numbers."""
    try:
        return graphs.places_of(graphs.spec_of(spec))
    except Exception:  # a class of the results is unknown here
        return [f"#{each}" for each in range(number)]


def _keywords(spec: str) -> list[str]:
    try:
        return graphs.keywords_of(graphs.spec_of(spec))
    except Exception:  # a class of the arguments is unknown here
        return []


def _weight(name: str, row: Json) -> ValueDescription:
    return ValueDescription(name, row["dtype"], str(row["shape"]), row["device"])


def _why_not_here(machine: Json, name: str) -> str:
    try:
        refuse_other(machine, name)
    except ArtifactError as error:
        return str(error)
    return ""
