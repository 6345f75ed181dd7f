"""The answer about a whole program: whether eager and compiled differ, and in which layer.

Every operation on a program needs it: "no failure" also requires equal calls. A failing graph names
the culprit of most failures; a failure that no graph shows has only its layer.
"""

from dataclasses import dataclass

from ctk.toolkit.case.failure import FailureOrigin
from ctk.toolkit.case.formats.schema import document
from ctk.toolkit.case.judgement import Judgement

LATER_CALL = "later call"
"""The cause of a call that differs although neither Dynamo nor a compile of its own is at fault."""


@document
@dataclass(frozen=True, slots=True)
class EndToEnd:
    """The answer about one program.

    Attributes:
        judgement: PASSES when every call gives eager's results, exceptions and side effects; its
            signature names the first result that differs (`call2.out0`).
        call: The first call that differs, from 1; 0 for none.
        layer: The first layer that differs on the way from eager to the target; None: unknown.
        cause: The part of that layer at fault (`guards`, `capture`, `side_effects`, ...), or empty.
        line: `FILE:LINE` of the program that shows it, if known.
        evidence: The plays and their answers, one line each.
        confirmed: Whether a counterfactual proves it: the program passes without exactly that part.
        backend: The lowest rung of the ladder that shows the failure; empty if only
            the target does.
        more: The change of the failing call against the program's own (`CHANGES`), or empty.
        alternatives: Other lines that make the program pass as `line` does.
    """

    judgement: Judgement
    call: int = 0
    layer: FailureOrigin | None = None
    cause: str = ""
    line: str = ""
    evidence: tuple[str, ...] = ()
    confirmed: bool = False
    program: str = ""
    target: str = ""
    backend: str = ""
    more: str = ""
    alternatives: tuple[str, ...] = ()

    @property
    def where(self) -> str:
        """The layer and the part at fault: `dynamo (guards)`, `a later call (5th)`."""
        if self.cause == LATER_CALL:
            return f"a later call ({_ordinal(self.call)})"
        layer = self.layer or "an unknown layer"
        return f"{layer} ({self.cause})" if self.cause else layer

    def __str__(self) -> str:
        if not self.judgement.fails:
            return self.judgement.detail or self.judgement.verdict.value
        place = f", {self.line}" if self.line else ""
        return f"{self.judgement.signature} [{self.where}{place}]"


def _ordinal(number: int) -> str:
    """Return `1st`, `2nd`, `3rd`, `4th`, `11th`."""
    ends = {1: "st", 2: "nd", 3: "rd"}
    return f"{number}{ends.get(number % 10, 'th') if number % 100 not in (11, 12, 13) else 'th'}"
