"""How long a question may take: as the user says, and less for the candidates of a reduction.

Once a question was answered, a candidate that takes ten times as long as the slowest answer hangs
with near certainty, and "no" is a safe answer about a candidate. So a candidate that hangs costs
seconds, not the whole `--timeout`. What it does not do: shorten a question whose answer is a
verdict (the case itself, the proof of a culprit).

    --timeout 60, slowest answer 0.4 s: a candidate may take 5 s; slowest 2 s: 20 s
"""

from dataclasses import dataclass

FACTOR = 10.0
FLOOR_SECONDS = 5.0
"""Below this nothing is called a hang: a busy machine alone may take so long."""

UNLIMITED_FLOOR_SECONDS = 60.0
"""The same where the user set no limit at all."""


@dataclass(slots=True)
class Patience:
    """The time limits of one executor.

    Attributes:
        limit_seconds: What the user set; None for no limit.
        slowest_seconds: The longest that an answer took; None before the first.
        is_proved: A candidate that ran out of its short time also ran out of the whole one.
    """

    limit_seconds: float | None
    slowest_seconds: float | None = None
    is_proved: bool = False

    def seconds(self, *, is_candidate: bool) -> float | None:
        """Return the limit of the next question."""
        if not is_candidate or self.slowest_seconds is None:
            return self.limit_seconds
        if self.limit_seconds is None:
            return max(UNLIMITED_FLOOR_SECONDS, FACTOR * self.slowest_seconds)
        return min(self.limit_seconds, max(FLOOR_SECONDS, FACTOR * self.slowest_seconds))

    def note(self, seconds: float) -> None:
        """Remember how long an answer took."""
        self.slowest_seconds = max(seconds, self.slowest_seconds or 0.0)
