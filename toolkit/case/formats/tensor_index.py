"""The memory layout of tensors as a document: storages, and entries that view them."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from ctk.toolkit.case.formats.recipes import Recipe
from ctk.toolkit.case.formats.schema import document


@document
@dataclass(frozen=True, slots=True)
class Storage:
    """A piece of memory, and the values in it.

    Attributes:
        first: Elements before the first value.
        stride: Of the values in memory.
        values: Whether they are stored, or built by the recipe: `written` exactly, `synthetic`
            approximately.
        inference: Whether it belongs to an inference tensor.
    """

    dtype: str
    first: int
    shape: tuple[int, ...]
    stride: tuple[int, ...]
    values: Literal["stored", "written", "synthetic"] = "stored"
    recipe: Recipe | None = None
    inference: bool = False


@document
@dataclass(frozen=True, slots=True)
class TensorEntry:
    """A tensor on a storage."""

    storage: str
    offset: int
    shape: tuple[int, ...]
    stride: tuple[int, ...]
    dtype: str
    device: str
    requires_grad: bool
    parameter: bool
    conj: bool


@document
@dataclass(frozen=True, slots=True)
class TensorIndex:
    """The memory layout of tensors.

    Attributes:
        same: Further names of tensors in `entries`.
    """

    entries: Mapping[str, TensorEntry]
    same: Mapping[str, str]
    storages: Mapping[str, Storage]

    @property
    def synthetic(self) -> tuple[str, ...]:
        """The names of the tensors whose values are not stored."""
        owners = {**self.entries, **{name: self.entries[of] for name, of in self.same.items()}}
        return tuple(
            name
            for name, entry in owners.items()
            if self.storages[entry.storage].values == "synthetic"
        )
