"""What every test of a reducer step needs: small cases, and the promises that all steps make."""

from collections.abc import Callable, Iterator, Sequence

import torch
from torch.fx import symbolic_trace

from ctk.toolkit.case.case import Case
from ctk.toolkit.reduce.analysis import facts_of
from ctk.toolkit.reduce.edits import Edit
from ctk.toolkit.reduce.proposal import (
    Descent,
    GaveUp,
    Guesses,
    Monotone,
    Proposal,
    Step,
    Subset,
)
from ctk.toolkit.reduce.size import is_smaller

X = torch.linspace(-1, 1, 16).reshape(4, 4)


def traced(function: Callable[..., object], *inputs: object) -> Case:
    """Return the case of a function, its calls as they are written: dead ones stay."""
    return Case(symbolic_trace(function), inputs, target="fake")


def proposals(step: Step, case: Case) -> Sequence[Proposal]:
    """Return what a step proposes for a case, after checking what every step promises.

    1. The same case gives the same proposals. 2. Every edit applies, or says that it makes no
    sense; it never raises. 3. What it gives is smaller (`size.py`), or the reducer would never ask
    about it.
    """
    facts = facts_of(case)
    found = step.propose(case, facts)
    assert [edits(p) for p in step.propose(case, facts)] == [edits(p) for p in found]
    results = [edit.apply(case, facts) for proposal in found for edit in single_edits(proposal)]
    made = [result for result in results if result is not None]
    assert all(is_smaller(result, case) for result in made)
    assert made or not results, "no edit of the step applies"
    return found


def single_edits(proposal: Proposal) -> Iterator[Edit]:
    """Yield each smallest edit of a proposal: every rung, every guess, or every atom alone."""
    match proposal:
        case Guesses(edits):
            yield from edits
        case Monotone(make, count, _):
            yield from (make(rung) for rung in range(1, count + 1))
        case Descent(make, number):
            yield from (make(each) for each in range(number - 1, 0, -1))
        case GaveUp():
            pass
        case Subset(make, atoms):
            yield from (make((atom,)) for atom in atoms)


def edits(proposal: Proposal) -> list[object]:
    """Return the smallest edits of a proposal."""
    return list(single_edits(proposal))


def kinds(found: Sequence[Proposal]) -> list[str]:
    """Return `monotone`, `descent`, `subset`, `guesses` or `gaveup` for each proposal."""
    return [type(each).__name__.lower() for each in found]
