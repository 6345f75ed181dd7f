"""Which questions come next, if the answers are those that are likely: what to ask ahead.

A search depends on nothing but the answers (`search.py`), so that it can be played again with
answers that are assumed. From the question that is being asked, both answers are followed, the
likelier first; a search that ends without an accepted edit goes on with the next proposal. The
order of the questions that are really asked, and so the result, does not depend on any of this.
"""

import heapq
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import count

from ctk.toolkit.reduce.edits import Edit
from ctk.toolkit.reduce.efforts import Effort, Questions
from ctk.toolkit.reduce.proposal import Proposal
from ctk.toolkit.reduce.search import Answer

MOST = 64
"""How many places are looked at: what lies further ahead is hardly ever asked."""


@dataclass(frozen=True, slots=True)
class Place:
    """A place in a search: which proposal, after which answers.

    Attributes:
        index: Which of the proposals that follow each other while nothing is accepted.
        answers: What has been answered about it.
    """

    index: int = 0
    answers: tuple[Answer, ...] = ()

    def after(self, answer: Answer) -> "Place":
        """Return the place behind one more answer."""
        return Place(self.index, (*self.answers, answer))


Agenda = Callable[[int], Proposal | None]
"""Says which proposal is the n-th; None behind the last."""


@dataclass(order=True, slots=True)
class _Branch:
    cost: float
    number: int
    place: Place = field(compare=False)
    likelihood: float = field(compare=False)


def upcoming(
    agenda: Agenda,
    place: Place,
    effort: Effort,
    *,
    accepted: float,
    exists: Callable[[Edit], bool],
) -> Iterator[Edit]:
    """Yield the edits that may be asked about after the one that is being asked, likeliest first.

    Args:
        agenda: The proposals.
        place: Where the search is; its last question has no answer yet.
        effort: How proposals are tried.
        accepted: How likely an edit is to be accepted, between 0 and 1.
        exists: Whether an edit makes a candidate; one that makes none is answered by None.
    """
    numbers = count()
    branches: list[_Branch] = []

    def push(after: Place, likelihood: float) -> None:
        heapq.heappush(branches, _Branch(-likelihood, next(numbers), after, likelihood))

    def branch_out(before: Place, is_there: bool, likelihood: float) -> None:
        if not is_there:
            push(before.after(None), likelihood)
            return
        push(before.after(False), likelihood * (1 - accepted))
        push(before.after(True), likelihood * accepted)

    branch_out(place, True, 1.0)
    for _ in range(MOST):
        if not branches:
            return
        branch = heapq.heappop(branches)
        proposal = agenda(branch.place.index)
        edit = _next_question(proposal, effort, branch.place) if proposal else None
        if edit is not None:
            is_there = exists(edit)
            if is_there:
                yield edit
            branch_out(branch.place, is_there, branch.likelihood)
        elif proposal is not None and True not in branch.place.answers:
            push(Place(branch.place.index + 1), branch.likelihood)


def _next_question(proposal: Proposal, effort: Effort, place: Place) -> Edit | None:
    """Return what a search asks after some answers; None if it has ended."""
    search: Questions = effort(proposal)
    try:
        edit = next(search)
        for answer in place.answers:
            edit = search.send(answer)
    except StopIteration:
        return None
    return edit
