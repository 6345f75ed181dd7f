"""Compare the inputs, or the constants, of two cases on disk.

    x    float32[4, 6], strides [6, 1], offset 40, cpu    float32[4, 6], strides [6, 1], cpu

Of each tensor: type, strides, offset, device, shared memory, autograd; then its values, rebuilt as
for a run. Nothing is imported or run.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import torch
from torch import Tensor

from ctk.compiler.errors import CaseError
from ctk.compiler.fx.clone import extent, raw_bytes
from ctk.compiler.fx.types import tensor_text
from ctk.toolkit.case.formats.plain_text import one_line
from ctk.toolkit.case.formats.tensor_index import Storage, TensorEntry, TensorIndex
from ctk.toolkit.case.formats.tensors import unpack_tensors

NOTHING = "-"


@dataclass(frozen=True, slots=True)
class CaseDifference:
    """A difference of two cases: its subject, the left and the right value."""

    what: str
    left: str
    right: str


@dataclass(frozen=True, slots=True)
class StoredValues:
    """The stored values of one case by name.

    Attributes:
        file: The file of the index, for errors.
        names: Of all values, in order.
        others: The values other than tensors, as texts.
        viewers: The tensors on each storage, each tensor once.
    """

    file: Path
    names: Collection[str]
    others: Mapping[str, str]
    index: TensorIndex
    arrays: Mapping[str, Tensor]
    viewers: dict[str, list[str]] = field(init=False, default_factory=dict[str, list[str]])

    def __post_init__(self) -> None:
        for name, entry in self.index.entries.items():
            self.viewers.setdefault(entry.storage, []).append(name)

    def find(self, name: str) -> tuple[TensorEntry, Storage]:
        """Return entry and storage of a tensor; raise `CaseError` if the index lacks it."""
        entry = self.index.entries.get(self.index.same.get(name, name))
        storage = self.index.storages.get(entry.storage) if entry else None
        if entry is None or storage is None:
            raise CaseError(
                f"{self.file.name} in {self.file.parent} lacks {one_line(name, 80)}: the "
                "case was changed by hand; copy the folder again"
            )
        return entry, storage

    def describe(self, name: str) -> str:
        """Return type and layout of a tensor, or another value as text."""
        if name not in self.names:
            return NOTHING
        if name in self.others:
            return one_line(self.others[name])
        entry, storage = self.find(name)
        parts = [tensor_text(entry.dtype, entry.shape), f"strides {list(entry.stride)}"]
        if entry.offset:
            parts.append(f"offset {entry.offset}")
        parts += [entry.device, *self._memory(name, entry, storage)]
        marks = {
            "conjugated": entry.conj,
            "requires grad": entry.requires_grad,
            "parameter": entry.parameter,
            "inference tensor": storage.inference,
            "synthetic values": storage.values == "synthetic",
        }
        return one_line(", ".join([*parts, *(mark for mark, is_so in marks.items() if is_so)]))

    def _memory(self, name: str, entry: TensorEntry, storage: Storage) -> Iterator[str]:
        """Yield how a tensor shares memory, and its storage if it is a part of it."""
        first = self.index.same.get(name)
        if first is not None:
            yield f"the same tensor as {first}"
        sharing = [each for each in self.viewers[entry.storage] if each not in (name, first)]
        if sharing:
            yield f"shares memory with {', '.join(sharing)}"
        end = storage.first + extent(storage.shape, storage.stride)
        own = entry.offset + extent(entry.shape, entry.stride)
        if storage.dtype != entry.dtype or (storage.first, end) != (entry.offset, own):
            yield f"of memory {storage.dtype}[{storage.first}:{end}]"

    def tensor(self, name: str) -> Tensor:
        """Return a tensor, on the CPU; raise `CaseError` if it is damaged or too large."""
        entry, storage = self.find(name)
        index = TensorIndex({name: entry}, {}, {entry.storage: storage})
        where = f"{self.file.name} in {self.file.parent}"
        return unpack_tensors(index, self.arrays, device="cpu", where=where)[name]


def compare_stored(left: StoredValues, right: StoredValues) -> Iterator[CaseDifference]:
    """Yield each value that differs, by name; then memory that no tensor covers."""
    agreeing: list[str] = []
    for name in dict.fromkeys([*left.names, *right.names]):
        mine, others = left.describe(name), right.describe(name)
        changed = "" if NOTHING in (mine, others) else _compare_values(left, right, name)
        if mine != others:
            yield CaseDifference(
                one_line(name), mine, f"{others}; {changed}" if changed else others
            )
        elif changed:
            yield CaseDifference(one_line(name), mine, changed)
        elif name not in left.others:
            agreeing.append(name)
    yield from _behind(left, right, agreeing)


def _compare_values(left: StoredValues, right: StoredValues, name: str) -> str:
    """Return how the values of two tensors of one type differ; empty if not compared."""
    if name in left.others or name in right.others:
        return ""
    (entry, storage), (other_entry, other) = left.find(name), right.find(name)
    if (entry.dtype, entry.shape) != (other_entry.dtype, other_entry.shape):
        return ""
    if "synthetic" in (storage.values, other.values):
        is_same = (storage.values, storage.recipe) == (other.values, other.recipe)
        return "" if is_same else "other values"
    mine, others = left.tensor(name), right.tensor(name)
    count = int((_bytes(mine) != _bytes(others)).any(dim=1).sum())
    return f"{count} of {mine.numel()} values differ" if count else ""


def _behind(
    left: StoredValues, right: StoredValues, agreeing: Sequence[str]
) -> Iterator[CaseDifference]:
    """Yield memory that differs only in gaps between equal tensors."""
    known = set(agreeing)
    for name in agreeing:
        key = left.find(name)[0].storage
        viewers = left.viewers[key]
        is_first = name == viewers[0] and known.issuperset(viewers)
        if is_first and not _is_same_memory(left, right, name):
            yield CaseDifference(
                one_line(f"memory of {key}"), "", "other values that no tensor shows"
            )


def _is_same_memory(left: StoredValues, right: StoredValues, name: str) -> bool:
    (entry, storage), (other_entry, other) = left.find(name), right.find(name)
    if (storage.values, storage.recipe) != (other.values, other.recipe):
        return False
    mine, others = left.arrays.get(entry.storage), right.arrays.get(other_entry.storage)
    return mine is None or others is None or torch.equal(_bytes(mine), _bytes(others))


def _bytes(values: Tensor) -> Tensor:
    """Return the bytes of each value, so that a NaN equals itself."""
    plain = values.resolve_conj().resolve_neg()
    return raw_bytes(plain).view(-1, plain.itemsize)
