"""What an oracle answers: a verdict and what was seen. Never a bool."""

from dataclasses import dataclass, field
from enum import Enum

from ctk.toolkit.case.failure import Signature
from ctk.toolkit.case.formats.schema import document


class Verdict(Enum):
    """What an oracle says of a case, compared with the failure it is looking for."""

    REPRODUCES = "reproduces"
    PASSES = "passes"
    DIFFERENT = "different"  # it fails, but with another signature
    INVALID = "invalid"  # the case does not fit together, or breaks the process: no question to ask
    FLAKY = "flaky"  # two runs of the same program differ (random ops, races)
    TIMEOUT = "timeout"


@document
@dataclass(frozen=True, slots=True)
class Judgement:
    """An oracle's answer: the verdict, and the failure that was seen, if any.

    Attributes:
        verdict: Compared with the failure that is looked for.
        signature: What was seen.
        detail: More of it, for people.
        seconds: How long it took; of one that a limit of time has ended, that limit. None where
            nobody measures. Two answers that differ in it are the same.
    """

    verdict: Verdict
    signature: Signature | None = None
    detail: str = ""
    seconds: float | None = field(default=None, compare=False)

    @property
    def is_out_of_time(self) -> bool:
        """Whether a limit of time has ended it: with more time it may be another answer."""
        return self.signature is not None and self.signature.kind == "timeout"

    def holds(self, seconds: float | None) -> bool:
        """Return whether it would be the same with a limit of so many seconds; None: no limit."""
        if not self.is_out_of_time:
            return True
        return seconds is not None and self.seconds is not None and self.seconds >= seconds

    @property
    def fails(self) -> bool:
        """Whether a failure was seen: the one that is looked for, or another."""
        return self.verdict in (Verdict.REPRODUCES, Verdict.DIFFERENT)

    @property
    def tells_of_the_program(self) -> bool:
        """Whether the whole program need not be asked: its graph fails, or gives no answer in time.

        A program with a graph that hangs hangs too.
        """
        return self.fails or self.verdict is Verdict.TIMEOUT

    @property
    def telling(self) -> int:
        """How much it says of a program of several graphs: one failing graph makes it fail."""
        order = {Verdict.PASSES: 0, Verdict.DIFFERENT: 2, Verdict.REPRODUCES: 3}
        return order.get(self.verdict, 1)
