"""Check a case with other sizes, by a run on fake tensors."""

from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, ClassVar

import torch

from ctk.compiler.torch_compat.fake import fake_tensors as fake
from ctk.toolkit.case.case import Case
from ctk.toolkit.reduce.dimensions.propagation import Propagation
from ctk.toolkit.reduce.dimensions.size_places import SizePlace
from ctk.toolkit.reduce.dimensions.size_solver import Assignment
from ctk.toolkit.reduce.dimensions.windows import strides_for


@dataclass(frozen=True, slots=True)
class Checked:
    """The result of a fake run with other sizes, by node; `is_sure` unless sizes depend on data."""

    infos: Mapping[str, object]
    is_sure: bool


def check(
    case: Case, sizes: Assignment, *, empty: frozenset[tuple[str, str]] | None
) -> Checked | None:
    """Return the result of a run with these sizes; None if the case cannot run with them.

    Args:
        empty: Values (path of the graph, node) that may have no elements, while no other may lose
            all; None: any may.
    """
    run = Propagation(_Numbers(fake.new_fake_mode(), sizes))
    try:
        run.run(case)
    except Exception:  # operators refuse arguments with any exception
        return None
    is_full = empty is None or run.empty <= empty
    return Checked(run.infos, not run.needs_data) if is_full else None


@dataclass(frozen=True, slots=True)
class _Numbers:
    retries: ClassVar[bool] = False

    mode: Any
    sizes: Assignment

    def running(self) -> AbstractContextManager[None]:
        return fake.fake_compute(self.mode)

    def tensor(self, value: torch.Tensor, place: SizePlace) -> Any:
        sizes = [self.sizes.get(place.at(dim), size) for dim, size in enumerate(value.shape)]
        if sizes == list(value.shape):
            return fake.to_fake(value, self.mode)
        with self.mode:
            return torch.empty_strided(
                sizes, strides_for(value, sizes), dtype=value.dtype, device=value.device
            )

    def size(self, value: int, place: SizePlace) -> int:
        return self.sizes.get(place, value)

    def result(self, value: object, given: Any, *, refused: bool = False) -> object:
        return value
