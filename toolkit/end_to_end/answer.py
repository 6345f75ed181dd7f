"""What the comparison of a whole program says: do eager and compiled differ, and in which layer.

It is the first question of every operation on a program: only if its calls agree is the answer "no
failure". A graph shows the culprit of most failures; one that no graph shows keeps the layer that
is told here.
"""

from dataclasses import dataclass

from ctk.toolkit.case.failure import FailureOrigin
from ctk.toolkit.case.formats.schema import document
from ctk.toolkit.case.judgement import Judgement


@document
@dataclass(frozen=True, slots=True)
class EndToEnd:
    """The answer about one program.

    Attributes:
        judgement: PASSES when every call gives eager's results, exceptions and side effects; its
            signature names the first result that differs (`call2.out0`).
        call: Which call differs first, from 1; 0 when none does.
        layer: Where the results first differ on the way from eager to the target; None: unknown.
        cause: What is at fault in that layer (`guards`, `capture`, `side_effects`, ...), or empty.
        line: `FILE:LINE` of the program that shows it, if known.
        evidence: How we know: what was run, and what it gave.
        confirmed: Whether a counterfactual shows it: without exactly that, the program passes.
        program: Name of the program.
        target: What it was compiled with.
        backend: Of torch's backends the one with the least of a compiler that shows it too; empty
            where only the target does.
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

    @property
    def where(self) -> str:
        """The layer and what is at fault there: `dynamo (guards)`."""
        layer = self.layer or "an unknown layer"
        return f"{layer} ({self.cause})" if self.cause else layer

    def __str__(self) -> str:
        if not self.judgement.fails:
            return self.judgement.detail or self.judgement.verdict.value
        place = f", {self.line}" if self.line else ""
        return f"{self.judgement.signature} [{self.where}{place}]"
