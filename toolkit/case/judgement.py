"""The answer of an oracle: a verdict and the observed failure. Never a bool."""

from dataclasses import dataclass, field
from enum import Enum

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


@document
@dataclass(frozen=True, slots=True)
class Judgement:
    """The answer of an oracle: the verdict, and the observed failure, if any.

    Attributes:
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
    def tells_of_the_program(self) -> bool:
        """Whether the whole program need not be judged: its graph fails or times out.

        A program with a graph that hangs hangs as well.
        """
        return self.fails or self.verdict is Verdict.TIMEOUT

    @property
    def telling(self) -> int:
        """Severity, for the verdict of a program of several graphs: one failing graph decides."""
        order = {Verdict.PASSES: 0, Verdict.DIFFERENT: 2, Verdict.REPRODUCES: 3}
        return order.get(self.verdict, 1)
