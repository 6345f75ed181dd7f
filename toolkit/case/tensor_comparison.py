"""What differs between the inputs, or the constants, of two cases on disk.

    x    float32[4, 6], strides [6, 1], offset 40, cpu    float32[4, 6], strides [6, 1], cpu

Of each tensor: type, strides, offset, device, whose memory it shares and how much of that there is,
autograd; then its values, which are put together as for a run. Nothing is imported or run.
"""

from collections.abc import Iterator, KeysView, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from ctk.compiler.errors import CaseError
from ctk.compiler.fx.clone import extent
from ctk.compiler.fx.types import tensor_text
from ctk.toolkit.case.formats.plain_text import one_line
from ctk.toolkit.case.formats.tensor_index import Storage, TensorEntry, TensorIndex
from ctk.toolkit.case.formats.tensors import unpack_tensors

NOTHING = "-"


@dataclass(frozen=True, slots=True)
class CaseDifference:
    """One thing that two cases have otherwise: what, on the left, on the right."""

    what: str
    left: str
    right: str


@dataclass(frozen=True, slots=True)
class StoredValues:
    """Values of one case by name, as they are stored.

    Attributes:
        file: What says how they lie in memory, for errors.
        names: All of them, in order, quickly found.
        others: Those that are no tensors, as text.
        index: How the tensors lie in memory.
        arrays: Stored values.
        lookers: The tensors that look at each piece of memory, each tensor once.
    """

    file: Path
    names: KeysView[str]
    others: Mapping[str, str]
    index: TensorIndex
    arrays: Mapping[str, Tensor]
    lookers: Mapping[str, Sequence[str]]

    @classmethod
    def of(
        cls,
        file: Path,
        names: Sequence[str],
        others: Mapping[str, str],
        index: TensorIndex,
        arrays: Mapping[str, Tensor],
    ) -> "StoredValues":
        """Return the values that a file describes; see the attributes."""
        lookers: dict[str, list[str]] = {}
        for name, entry in index.entries.items():
            lookers.setdefault(entry.storage, []).append(name)
        return cls(file, dict.fromkeys(names).keys(), others, index, arrays, lookers)

    def find(self, name: str) -> tuple[TensorEntry, Storage]:
        """Return how a tensor looks at memory, and that memory.

        Raises:
            CaseError: It is not described: somebody has changed the file.
        """
        entry = self.index.entries.get(self.index.same.get(name, name))
        storage = self.index.storages.get(entry.storage) if entry else None
        if entry is None or storage is None:
            raise CaseError(
                f"{self.file.name} in {self.file.parent} says nothing of {one_line(name, 80)}: the "
                "case was changed by hand; copy the folder again"
            )
        return entry, storage

    def says(self, name: str) -> str:
        """Return what a value is: type and layout of a tensor, else the value itself."""
        if name not in self.names:
            return NOTHING
        if name in self.others:
            return one_line(self.others[name])
        entry, storage = self.find(name)
        parts = [tensor_text(entry.dtype, entry.shape), f"strides {list(entry.stride)}"]
        parts += [f"offset {entry.offset}"] * bool(entry.offset)
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
        """Yield what is unusual of its memory: who else has it, and where it is more than shown."""
        first = self.index.same.get(name)
        if first is not None:
            yield f"the same tensor as {first}"
        sharing = [each for each in self.lookers[entry.storage] if each not in (name, first)]
        if sharing:
            yield f"shares memory with {', '.join(sharing)}"
        end = storage.first + extent(storage.shape, storage.stride)
        own = entry.offset + extent(entry.shape, entry.stride)
        if storage.dtype != entry.dtype or (storage.first, end) != (entry.offset, own):
            yield f"of memory {storage.dtype}[{storage.first}:{end}]"

    def tensor(self, name: str) -> Tensor:
        """Return a tensor, on the CPU.

        Raises:
            CaseError: Its description is damaged, or it does not fit into memory.
        """
        entry, storage = self.find(name)
        index = TensorIndex({name: entry}, {}, {entry.storage: storage})
        where = f"{self.file.name} in {self.file.parent}"
        return unpack_tensors(index, self.arrays, device="cpu", where=where)[name]


def compare_stored(left: StoredValues, right: StoredValues) -> Iterator[CaseDifference]:
    """Yield one for each value that differs, by name; then memory behind tensors that agree."""
    agreeing: list[str] = []
    for name in dict.fromkeys([*left.names, *right.names]):
        mine, others = left.says(name), right.says(name)
        changed = "" if NOTHING in (mine, others) else _changed(left, right, name)
        if mine != others:
            yield CaseDifference(
                one_line(name), mine, f"{others}; {changed}" if changed else others
            )
        elif changed:
            yield CaseDifference(one_line(name), mine, changed)
        elif name not in left.others:
            agreeing.append(name)
    yield from _behind(left, right, agreeing)


def _changed(left: StoredValues, right: StoredValues, name: str) -> str:
    """Return how the values of two tensors of one type differ; empty where nothing is compared."""
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
    """Yield memory that differs where none of the tensors that look at it does: in gaps."""
    known = set(agreeing)
    for name in agreeing:
        key = left.find(name)[0].storage
        lookers = left.lookers[key]
        is_first = name == lookers[0] and known.issuperset(lookers)
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
    """Return the bytes of each value: a NaN is equal to itself."""
    plain = values.detach().resolve_conj().resolve_neg()
    return plain.reshape(-1, 1).contiguous().view(torch.uint8)
