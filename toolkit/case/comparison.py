"""What differs between two cases on disk: their graphs, their inputs, how they are compiled.

It reads the files as they are: it loads no graph, and runs and imports nothing that a case names.
What it does not do: compile (`ctk diff` with one case compares two compiles).
"""

import difflib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import torch
from torch import Tensor

from ctk.compiler.errors import CaseError
from ctk.compiler.fx.types import tensor_text
from ctk.toolkit.case.inputs import Inputs
from ctk.toolkit.case.manifest import Manifest, read_manifest
from ctk.toolkit.case.replacing import whole_case
from ctk.toolkit.case.store import INPUTS, TEXT, VALUES
from ctk.toolkit.formats.bounded_file import check_no_link, read_bounded
from ctk.toolkit.formats.limits import GRAPH_NBYTES, TEXT_NBYTES
from ctk.toolkit.formats.plain_text import many_lines, one_line
from ctk.toolkit.formats.safetensors_file import load_arrays
from ctk.toolkit.formats.schema import encode, read_document
from ctk.toolkit.formats.tensor_index import Entry, Storage

NOTHING = "-"
_NEXT = "copy the folder again"
_SETTINGS = ("target", "config", "modes", "dynamic")


@dataclass(frozen=True, slots=True)
class Difference:
    """One thing that two cases have otherwise: what, on the left, on the right."""

    what: str
    left: str
    right: str


@dataclass(frozen=True, slots=True)
class CaseDiff:
    """What differs between two cases.

    Attributes:
        graph: The unified difference of `graph.py`, without its head; empty where it is the same.
        inputs: One for each input that differs, by name.
        settings: One for each of target, options, modes, symbolic sizes that differs.
    """

    graph: str
    inputs: tuple[Difference, ...]
    settings: tuple[Difference, ...]

    @property
    def is_same(self) -> bool:
        """Whether nothing differs."""
        return not (self.graph or self.inputs or self.settings)

    def __str__(self) -> str:
        lines = [line for line in self.graph.splitlines() if line[:1] in ("+", "-")]
        parts = [f"{len(lines)} lines of the graph"] * bool(lines)
        parts += [f"input {each.what}" for each in self.inputs]
        parts += [each.what for each in self.settings]
        return ", ".join(parts)


def compare_cases(left: Path, right: Path) -> CaseDiff:
    """Return what differs between the cases in two folders.

    Raises:
        CaseError: One of them is no case, or is damaged.
    """
    one, other = whole_case(left), whole_case(right)
    manifests = read_manifest(one), read_manifest(other)
    texts = _body(one), _body(other)
    diff = list(difflib.unified_diff(*texts, lineterm="", n=1))[2:]  # without the names of files
    shown = (line for line in diff if not line.startswith("@@"))
    return CaseDiff("\n".join(shown), tuple(_inputs(one, other)), tuple(_settings(*manifests)))


def _body(folder: Path) -> list[str]:
    """Return the lines of `graph.py` below its provenance."""
    path = folder / TEXT
    check_no_link(folder, path)
    text = read_bounded(path, TEXT_NBYTES).decode(errors="replace")
    return many_lines(text).splitlines()[1:]


def _settings(left: Manifest, right: Manifest) -> Iterator[Difference]:
    """Yield what is set otherwise; of options and modes, each that differs."""
    mine, others = encode(left), encode(right)
    for name in _SETTINGS:
        one, other = _by_key(mine[name]), _by_key(others[name])
        for key in dict.fromkeys([*one, *other]):
            if one.get(key) != other.get(key):
                what = f"{name}.{key}" if key else name
                said = [one_line(str(each.get(key, NOTHING))) for each in (one, other)]
                yield Difference(one_line(what), *said)


def _by_key(value: object) -> Mapping[str, object]:
    return cast("Mapping[str, object]", value) if isinstance(value, Mapping) else {"": value}


@dataclass(frozen=True, slots=True)
class _Given:
    """The inputs of one case as they are stored."""

    folder: Path
    inputs: Inputs
    arrays: Mapping[str, Tensor]

    @classmethod
    def of(cls, folder: Path) -> "_Given":
        inputs = read_document(Inputs, folder / INPUTS, next_step=_NEXT, limit=GRAPH_NBYTES)
        check_no_link(folder, folder / VALUES)
        stored = (folder / VALUES).is_file()
        return cls(folder, inputs, load_arrays(folder / VALUES) if stored else {})

    def find(self, name: str) -> tuple[Entry, Storage, Tensor | None]:
        """Return how an input lies in memory, and its stored values.

        Raises:
            CaseError: It is not described: somebody has changed the file.
        """
        index = self.inputs.tensors
        entry = index.entries.get(index.same.get(name, name))
        storage = index.storages.get(entry.storage) if entry else None
        if entry is None or storage is None:
            raise CaseError(
                f"{INPUTS} in {self.folder} says nothing of input {one_line(name, 80)}: the case "
                f"was changed by hand; {_NEXT}"
            )
        return entry, storage, self.arrays.get(entry.storage)

    def says(self, name: str) -> str:
        """Return what an input is: its type and layout, or its value."""
        if name not in self.inputs.names:
            return NOTHING
        if name in self.inputs.values:
            return one_line(str(self.inputs.values[name]))
        entry, _, _ = self.find(name)
        text = tensor_text(entry.dtype, entry.shape)
        return one_line(f"{text}, strides {list(entry.stride)}, {entry.device}")


def _inputs(left: Path, right: Path) -> Iterator[Difference]:
    one, other = _Given.of(left), _Given.of(right)
    for name in dict.fromkeys([*one.inputs.names, *other.inputs.names]):
        mine, others = one.says(name), other.says(name)
        if mine != others:
            yield Difference(one_line(name), mine, others)
        elif name not in one.inputs.values and (changed := _changed(one, other, name)):
            yield Difference(one_line(name), mine, changed)


def _changed(left: _Given, right: _Given, name: str) -> str:
    """Return how the values of two inputs of one type differ; empty where they are the same."""
    (_, storage, mine), (_, other, others) = left.find(name), right.find(name)
    if mine is None or others is None:
        is_same = mine is others and storage == other
        return "" if is_same else "other values"
    if mine.shape != others.shape or mine.dtype != others.dtype:
        return "other memory"
    count = int((_bytes(mine) != _bytes(others)).any(dim=1).sum())
    return f"{count} of {mine.numel()} values differ" if count else ""


def _bytes(values: Tensor) -> Tensor:
    """Return the bytes of each value: a NaN is equal to itself."""
    return values.reshape(-1, 1).view(torch.uint8)
