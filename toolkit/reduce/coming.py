"""The proposals that follow each other on one base as long as nothing is accepted, and their cases.

For those who ask ahead. A candidate that was made ahead and is asked about later is not made again;
what was made ahead of an earlier question and is no longer likely is let go.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

from ctk.toolkit.case.case import Case
from ctk.toolkit.reduce.analysis import Facts
from ctk.toolkit.reduce.edits import Edit
from ctk.toolkit.reduce.proposal import Proposal, Step


@dataclass(slots=True)
class Coming:
    """What comes next on one base.

    Attributes:
        base: The best case.
        facts: Its facts.
        proposals: Those that are known: the rest of a step's.
        later: The steps that follow it.
        made: Candidates that were made ahead.
    """

    base: Case
    facts: Facts
    proposals: list[Proposal]
    later: list[Step]
    made: dict[Edit, Case | None] = field(default_factory=dict[Edit, "Case | None"])

    def __call__(self, index: int) -> Proposal | None:
        """Return the n-th proposal from now on; None behind the last."""
        while len(self.proposals) <= index and self.later:
            step = self.later.pop(0)
            try:
                self.proposals.extend(step.propose(self.base, self.facts))
            except Exception:  # it raises again, and is told, when its turn comes
                self.later.clear()
        return self.proposals[index] if index < len(self.proposals) else None

    def take(self, edit: Edit) -> Case | None:
        """Return what an edit makes of the base; None where it makes no sense."""
        return self.made.pop(edit) if edit in self.made else edit.apply(self.base, self.facts)

    def look_ahead(self) -> Callable[[Edit], Case | None]:
        """Return what makes candidates ahead, and lets go of those made ahead before."""
        before, self.made = self.made, {}

        def make(edit: Edit) -> Case | None:
            if edit not in self.made:
                known = edit in before
                self.made[edit] = before[edit] if known else edit.apply(self.base, self.facts)
            return self.made[edit]

        return make
