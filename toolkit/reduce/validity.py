"""Discard candidates that cannot run, before any question: by an eager run or fake tensors."""

from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, ClassVar

import torch

from ctk.compiler.torch_compat.fake import fake_tensors as fake
from ctk.toolkit.case.case import Case
from ctk.toolkit.execution.execute import run_eager
from ctk.toolkit.reduce.analysis import Facts, facts_from, facts_of
from ctk.toolkit.reduce.dimensions.propagation import Propagation
from ctk.toolkit.reduce.dimensions.relations import Assignment
from ctk.toolkit.reduce.dimensions.size_places import SizePlace
from ctk.toolkit.reduce.dimensions.windows import strides_for
from ctk.toolkit.reduce.index_bounds import is_out_of_bounds, may_index
from ctk.toolkit.reduce.value_edits import tensors_of


def reject_invalid(candidate: Case | None, case: Case, facts: Facts) -> Case | None:
    """Return a candidate made of a case; None if it is known not to run."""
    if candidate is None or can_run(candidate, case, facts) is False:
        return None
    return candidate


def can_run(candidate: Case, case: Case, facts: Facts) -> bool | None:
    """Return whether a candidate runs in eager; None if only the oracle can find out."""
    if _may_run(candidate, facts):
        return run_eager(candidate).run is not None
    values = _foresee_values(candidate)
    if values is None and _is_foreseeable(case, facts):
        return False
    if _breaks_accelerator(candidate, facts, values):
        return False
    return None


def foresee_facts(candidate: Case, facts: Facts) -> Facts | None:
    """Return the facts of a candidate before its question; None if they cannot be foreseen."""
    if _may_run(candidate, facts):
        return facts_of(candidate)
    infos = _foresee_values(candidate)
    return None if infos is None else facts_from(candidate, infos, may_run=facts.may_run)


def _may_run(candidate: Case, facts: Facts) -> bool:
    breaks = candidate.signature is not None and candidate.signature.breaks_eager
    is_on_cpu = all(tensor.device.type == "cpu" for tensor in tensors_of(candidate).values())
    return facts.may_run and is_on_cpu and not breaks


def _breaks_accelerator(candidate: Case, facts: Facts, values: Mapping[str, object] | None) -> bool:
    """Return whether a candidate on a GPU would break it: an index is out of bounds.

    Args:
        values: Its values as fake tensors; None: not known.
    """
    breaks = candidate.signature is not None and candidate.signature.breaks_eager
    is_on_cpu = all(tensor.device.type == "cpu" for tensor in tensors_of(candidate).values())
    if not facts.may_run or is_on_cpu or breaks:
        return False
    return (values is None or may_index(values.values())) and is_out_of_bounds(candidate)


def _foresee_values(case: Case) -> Mapping[str, object] | None:
    found = check(case, {}, empty=None)
    return None if found is None else found.infos


def _is_foreseeable(case: Case, facts: Facts) -> bool:
    if "foreseeable" not in facts.notes:
        facts.notes["foreseeable"] = _foresee_values(case) is not None
    return bool(facts.notes["foreseeable"])


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
