"""Kernels as data: the stored form of a generator's kernels."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class StoredKernel:
    """A kernel as data.

    Attributes:
        data: Plain JSON; it names blobs.
        blobs: Machine code by name, which holds its digest: equal ones are stored once.
    """

    data: Any
    blobs: Mapping[str, bytes | memoryview] = field(
        default_factory=dict[str, "bytes | memoryview"], repr=False
    )
