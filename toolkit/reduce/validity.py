"""Discard candidates that cannot run, before any question: by an eager run or fake tensors."""

from collections.abc import Mapping

from ctk.toolkit.case.case import Case
from ctk.toolkit.execution.execute import run_eager
from ctk.toolkit.reduce.analysis import Facts, facts_from, facts_of
from ctk.toolkit.reduce.fake_check import check
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
    is_refused = _foresee_values(candidate) is None and _is_foreseeable(case, facts)
    return False if is_refused else None


def foresee_facts(candidate: Case, facts: Facts) -> Facts | None:
    """Return the facts of a candidate before its question; None if they cannot be foreseen."""
    if _may_run(candidate, facts):
        return facts_of(candidate)
    infos = _foresee_values(candidate)
    return None if infos is None else facts_from(candidate, infos, may_run=facts.may_run)


def _may_run(candidate: Case, facts: Facts) -> bool:
    breaks = candidate.signature is not None and candidate.signature.breaks_eager
    is_on_cpu = all(each.device.type == "cpu" for each in tensors_of(candidate).values())
    return facts.may_run and is_on_cpu and not breaks


def _foresee_values(case: Case) -> Mapping[str, object] | None:
    found = check(case, {}, empty=None)
    return None if found is None else found.infos


def _is_foreseeable(case: Case, facts: Facts) -> bool:
    if "foreseeable" not in facts.notes:
        facts.notes["foreseeable"] = _foresee_values(case) is not None
    return bool(facts.notes["foreseeable"])
