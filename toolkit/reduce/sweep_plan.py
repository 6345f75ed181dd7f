"""The rest of a sweep from one base: its proposals, candidates, and plans after an acceptance."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from ctk.toolkit.case.case import Case
from ctk.toolkit.reduce.analysis import Facts
from ctk.toolkit.reduce.edits import Edit
from ctk.toolkit.reduce.proposal import Proposal, Step
from ctk.toolkit.reduce.validity import foresee_facts

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
