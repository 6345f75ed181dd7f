"""The answer of an oracle: a verdict and the observed failure. Never a bool."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

from ctk.repro_templates.graph.judging import RunAnswer
from ctk.toolkit.case.failure import Signature
from ctk.toolkit.case.formats.schema import document


class Verdict(Enum):
    """The result of a case, compared with the failure that the oracle looks for."""

    REPRODUCES = "reproduces"
    PASSES = "passes"
    DIFFERENT = "different"  # it fails, but with another signature
    INVALID = "invalid"  # the case is inconsistent or breaks the process
    FLAKY = "flaky"  # two runs of the same program differ (random ops, races)
    TIMEOUT = "timeout"
    ILL_CONDITIONED = "ill-conditioned"  # rounding errors move eager itself that far
    UNINITIALIZED = "uninitialized"  # the value is memory that no operator has written
    DOCUMENTED = "documented"  # torch documents that a compiled program differs so

    @property
    def is_excused(self) -> bool:
        """Whether the results differ, and the compiler is not the cause."""
        return self in (Verdict.ILL_CONDITIONED, Verdict.UNINITIALIZED, Verdict.DOCUMENTED)

    @property
    def is_no_failure(self) -> bool:
        """Whether it clears the compiler: the results agree, or the difference is excused."""
        return self is Verdict.PASSES or self.is_excused


VERDICT_OF: Mapping[RunAnswer, Verdict] = {
    "passes": Verdict.PASSES,
    "fails": Verdict.REPRODUCES,
    "flaky": Verdict.FLAKY,
    "ill-conditioned": Verdict.ILL_CONDITIONED,
    "uninitialized": Verdict.UNINITIALIZED,
    "documented": Verdict.DOCUMENTED,
}
"""The verdict for the answer of two compared runs, where any failure is the expected one."""


@document
@dataclass(frozen=True, slots=True)
class Judgement:
    """The answer of an oracle: the verdict, and the observed failure, if any.

    Attributes:
        signature: The observed difference, excused or not; None if there is none.
        detail: For an excused difference the reason, with its figures.
        seconds: The time it took; after a timeout, the limit; None if not measured. Not part of the
            identity of an answer.
    """

    verdict: Verdict
    signature: Signature | None = None
    detail: str = ""
    seconds: float | None = field(default=None, compare=False)

    @property
    def is_out_of_time(self) -> bool:
        """Whether a time limit ended it: with more time the answer may differ."""
        return self.signature is not None and self.signature.kind == "timeout"

    def holds(self, seconds: float | None) -> bool:
        """Return whether the answer holds under a limit of so many seconds; None: no limit."""
        if not self.is_out_of_time:
            return True
        return seconds is not None and self.seconds is not None and self.seconds >= seconds

    @property
    def fails(self) -> bool:
        """Whether a failure was observed: the expected one, or another."""
        return self.verdict in (Verdict.REPRODUCES, Verdict.DIFFERENT)

    @property
    def is_excused(self) -> bool:
        """Whether the results differ, and the compiler is not the cause: not a failure."""
        return self.verdict.is_excused

    @property
    def is_no_failure(self) -> bool:
        """Whether the results agree with eager, or their difference is excused."""
        return self.verdict.is_no_failure

    @property
    def tells_of_the_program(self) -> bool:
        """Whether the whole program need not be judged: its graph fails or times out.

        A program with a graph that hangs hangs as well.
        """
        return self.fails or self.verdict is Verdict.TIMEOUT

    @property
    def telling(self) -> int:
        """Severity, for the verdict of a program of several graphs: one failing graph decides."""
        order = {Verdict.PASSES: 0, Verdict.DIFFERENT: 3, Verdict.REPRODUCES: 4}
        return 1 if self.is_excused else order.get(self.verdict, 2)
