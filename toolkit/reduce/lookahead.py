"""Foresee the next questions, for idle workers: the candidates that are likely to be asked soon.

From the current question both answers are followed, the likelier first; a search that ends is
followed by the next proposal. The order of the real questions, and so the result, does not change.
"""

import heapq
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import count

from ctk.toolkit.case.case import Case
from ctk.toolkit.reduce.edits import Edit
from ctk.toolkit.reduce.proposal import Proposal
from ctk.toolkit.reduce.proposal_search import Level, Questions
from ctk.toolkit.reduce.sweep_plan import SweepPlan
from ctk.toolkit.search.questions import Answer

IsAskable = Callable[[Case], bool]

MOST = 64
"""Most search states to visit: questions further ahead are hardly ever asked."""


@dataclass(frozen=True, slots=True)
class SearchState:
    """The state of a search; `coming` follow each other on one base while no edit is accepted."""

    coming: SweepPlan
    index: int = 0
    answers: tuple[Answer, ...] = ()
    accepted: Edit | None = None

    def after(self, edit: Edit, answer: Answer) -> "SearchState":
        """Return the state after one more answer."""
        accepted = edit if answer else self.accepted
        return SearchState(self.coming, self.index, (*self.answers, answer), accepted)

    def next(self) -> "SearchState | None":
        """Return the state after the end of a search; None if the next base is unknown."""
        if self.accepted is None:
            return SearchState(self.coming, self.index + 1)
        coming = self.coming.after(self.accepted, self.index)
        return coming and SearchState(coming)


@dataclass(order=True, slots=True)
class _Branch:
    cost: float
    number: int
    place: SearchState = field(compare=False)


def upcoming(
    place: SearchState, edit: Edit, effort: Level, accepted: float, is_askable: IsAskable
) -> Iterator[Case]:
    """Yield the candidates that may follow the current one, likeliest first.

    Args:
        accepted: How likely an edit is to be accepted, between 0 and 1.
    """
    numbers = count()
    branches: list[_Branch] = []
    makers: dict[int, Callable[[Edit], Case | None]] = {}

    def made(where: SearchState, wanted: Edit) -> Case | None:
        key = id(where.coming)
        makers[key] = makers.get(key) or where.coming.look_ahead()
        return makers[key](wanted)

    def push(after: SearchState | None, cost: float) -> None:
        if after is not None:
            heapq.heappush(branches, _Branch(cost, next(numbers), after))

    def branch_out(before: SearchState, asked: Edit, likelihood: float) -> None:
        push(before.after(asked, False), -likelihood * (1 - accepted))
        push(before.after(asked, True), -likelihood * accepted)

    made(place, edit)
    branch_out(place, edit, 1.0)
    for _ in range(MOST):
        if not branches:
            return
        branch = heapq.heappop(branches)
        where, likelihood = branch.place, -branch.cost
        proposal = where.coming.proposal(where.index)
        if proposal is None:
            continue
        wanted = _next_question(proposal, effort, where)
        if wanted is None:
            push(where.next(), branch.cost)
            continue
        candidate = made(where, wanted)
        if candidate is None or not is_askable(candidate):
            push(where.after(wanted, None), branch.cost)
            continue
        yield candidate
        branch_out(where, wanted, likelihood)


def _next_question(proposal: Proposal, effort: Level, place: SearchState) -> Edit | None:
    """Return the question of a search after some answers; None if it has ended."""
    search: Questions = effort(proposal)
    try:
        edit = next(search)
        for answer in place.answers:
            edit = search.send(answer)
    except StopIteration:
        return None
    return edit
