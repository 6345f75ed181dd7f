"""Foresee the next questions, for idle workers: the candidates that are likely to be asked soon.

From the current question both answers are followed, the likelier first; a search that ends is
followed by the next proposal. The order of the real questions, and so the result, does not change.
"""

import heapq
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import count

from ctk.toolkit.case.case import Case
from ctk.toolkit.reduce.analysis import Facts
from ctk.toolkit.reduce.edits import Edit
from ctk.toolkit.reduce.proposal import Proposal, Step
from ctk.toolkit.reduce.proposal_search import Level, Questions
from ctk.toolkit.reduce.validity import foresee_facts
from ctk.toolkit.search.questions import Answer

_Numbered = tuple[int, int, Proposal]
"""A proposal with the place of its step, and its own place among those of the step."""


@dataclass(slots=True)
class SweepPlan:
    """The rest of a sweep on one base, while no edit is accepted.

    Attributes:
        base: The best case, or a possible next one.
        made: Candidates that were made ahead, by edit.
        accepted: The plan after an edit was accepted, by edit.
    """

    base: Case
    facts: Facts
    steps: Sequence[Step]
    first: int
    made: dict[Edit, Case | None] = field(default_factory=dict[Edit, "Case | None"])
    accepted: dict[Edit, "SweepPlan | None"] = field(default_factory=dict[Edit, "SweepPlan | None"])
    _known: list[_Numbered] = field(default_factory=list[_Numbered])
    _asked: int = 0

    def proposal(self, index: int) -> Proposal | None:
        """Return the n-th proposal from now on; None behind the last."""
        found = self._find(index)
        return found and found[2]

    def _find(self, index: int) -> _Numbered | None:
        while len(self._known) <= index and self._asked < len(self.steps):
            place, self._asked = self._asked, self._asked + 1
            try:
                proposals = self.steps[place].propose(self.base, self.facts)
            except Exception:  # it raises again, and is reported, in its turn
                self._asked = len(self.steps)
                break
            numbered = [(place, number, each) for number, each in enumerate(proposals)]
            self._known += numbered[self.first if place == 0 else 0 :]
        return self._known[index] if index < len(self._known) else None

    def take(self, edit: Edit) -> Case | None:
        """Return the candidate of an edit; None if it does not apply."""
        return self.made.pop(edit) if edit in self.made else edit.apply(self.base, self.facts)

    def look_ahead(self) -> Callable[[Edit], Case | None]:
        """Return a function that makes candidates ahead, and drop those of the last lookahead."""
        before, self.made = self.made, {}

        def make(edit: Edit) -> Case | None:
            if edit not in self.made:
                known = edit in before
                self.made[edit] = before[edit] if known else edit.apply(self.base, self.facts)
            return self.made[edit]

        return make

    def after(self, edit: Edit, index: int) -> "SweepPlan | None":
        """Return the plan after the n-th proposal's edit was accepted; None if not foreseeable."""
        if edit not in self.accepted:
            self.accepted[edit] = self._after(edit, index)
        return self.accepted[edit]

    def _after(self, edit: Edit, index: int) -> "SweepPlan | None":
        found, candidate = self._find(index), self.made.get(edit)
        if found is None or candidate is None:
            return None
        place, number, _ = found
        step = self.steps[place]
        try:
            facts = foresee_facts(candidate, self.facts)
        except Exception:  # then it will hardly be accepted
            return None
        if facts is None:
            return None
        facts = replace(facts, handed_on=self.facts.handed_on)
        return SweepPlan(candidate, facts, self.steps[place:], number + (not step.repeats))


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


def upcoming(
    place: SearchState, edit: Edit, effort: Level, accepted: float, is_askable: IsAskable
) -> Iterator[Case]:
    """Yield the candidates that may follow the current one, likeliest first.

    Args:
        accepted: How likely an edit is to be accepted, between 0 and 1.
    """
    numbers = count()
    branches: list[tuple[float, int, SearchState]] = []  # cost, number to tell equal ones apart
    makers: dict[int, Callable[[Edit], Case | None]] = {}

    def made(where: SearchState, wanted: Edit) -> Case | None:
        key = id(where.coming)
        makers[key] = makers.get(key) or where.coming.look_ahead()
        return makers[key](wanted)

    def push(after: SearchState | None, cost: float) -> None:
        if after is not None:
            heapq.heappush(branches, (cost, next(numbers), after))

    def branch_out(before: SearchState, asked: Edit, likelihood: float) -> None:
        push(before.after(asked, False), -likelihood * (1 - accepted))
        push(before.after(asked, True), -likelihood * accepted)

    made(place, edit)
    branch_out(place, edit, 1.0)
    for _ in range(MOST):
        if not branches:
            return
        cost, _, where = heapq.heappop(branches)
        proposal = where.coming.proposal(where.index)
        if proposal is None:
            continue
        wanted = _next_question(proposal, effort, where)
        if wanted is None:
            push(where.next(), cost)
            continue
        candidate = made(where, wanted)
        if candidate is None or not is_askable(candidate):
            push(where.after(wanted, None), cost)
            continue
        yield candidate
        branch_out(where, wanted, -cost)


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
