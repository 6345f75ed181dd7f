"""Why a result is minimal: what came of each edit that would make it smaller.

    remove    without mul_2          passes
    remove    without relu           different: compile-error in joint/fold
    cut       inputs in place of x   leaves no program that makes sense

"Minimal" is said only with a whole one: every step has tried every smallest edit on the result
itself, and none reproduces.
"""

from dataclasses import dataclass, field

from ctk.toolkit.case.judgement import Judgement, Verdict
from ctk.toolkit.formats.checked import Line
from ctk.toolkit.formats.schema import document
from ctk.toolkit.reduce.about import names_of
from ctk.toolkit.reduce.edits import Edit
from ctk.toolkit.reduce.size import Measured


@document
@dataclass(frozen=True, slots=True)
class Refusal:
    """What came of one edit of the result.

    Attributes:
        step: Whose idea it was.
        edit: What it would change, in the user's words.
        verdict: What the oracle said; None where nothing was asked.
        why: What was seen, or why nothing was asked.
        about: Names of the nodes and inputs that it would change.
    """

    step: Line
    edit: Line
    verdict: Verdict | None
    why: Line = ""
    about: tuple[Line, ...] = ()


@dataclass(slots=True)
class Certificate:
    """What came of the edits of one case.

    Attributes:
        refusals: One for each edit, in the order in which they were tried.
        steps: Those that have tried each of their edits on this case.
        neighbour: The largest case asked about that passes: the closest to the result.
        neighbour_edit: What makes it.
    """

    refusals: dict[tuple[str, str], Refusal] = field(default_factory=dict[tuple[str, str], Refusal])
    steps: set[str] = field(default_factory=set[str])
    neighbour: Measured | None = None
    neighbour_edit: Refusal | None = None

    def skip(self, step: str, edit: Edit, why: str) -> None:
        """Note an edit about which nothing was asked."""
        self._note(Refusal(step, edit.says(), None, why, names_of(edit)))

    def refuse(self, step: str, edit: Edit, judgement: Judgement, candidate: Measured) -> None:
        """Note an edit that does not reproduce."""
        seen = _line(judgement.signature or judgement.detail)
        refusal = Refusal(step, edit.says(), judgement.verdict, seen, names_of(edit))
        self._note(refusal)
        is_closer = self.neighbour is None or self.neighbour < candidate
        if judgement.verdict is Verdict.PASSES and is_closer:
            self.neighbour, self.neighbour_edit = candidate, refusal

    def _note(self, refusal: Refusal) -> None:
        self.refusals[refusal.step, refusal.edit] = refusal


def _line(text: object) -> str:
    return str(text).partition("\n")[0]
