"""Kernels as data: the stored form of a generator's kernels."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

Blobs = Mapping[str, bytes | memoryview]


@dataclass(frozen=True, slots=True)
class StoredKernel:
    """A kernel as data.

    Attributes:
        data: Plain JSON; it names blobs.
        blobs: Machine code by name, which holds its digest: equal ones are stored once.
    """

    data: Any
    blobs: Blobs = field(default_factory=dict[str, "bytes | memoryview"], repr=False)
