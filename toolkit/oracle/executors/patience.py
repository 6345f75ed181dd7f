"""How long a question may take: as the user says, and less for the candidates of a reduction.

"No" is a safe answer about a candidate, and one that takes ten times as long as it should hangs
with near certainty. So a candidate that hangs costs seconds, not the whole `--timeout`:

1. What it should take follows from the last answers: the slowest of them, each in proportion to
   the size of its graph and what every compile costs. A graph that shrinks needs less time.
2. Only time counts in which the machine had a core for it (`ctk.toolkit.processes.waits`): on a
   busy machine everything is slow, and nothing hangs for that.
3. The first limits that run out are doubted: such a question is asked once more, with a multiple
   of the time. If it is answered then, limits are longer from now on, and doubted again.

    --timeout 60, the last answers 0.1 to 0.4 s: a candidate may take 4 s
    the last answers 0.5 s, of 800 nodes: one of 50 nodes may take 2 s, not 5

What it does not do: shorten a question whose answer is a verdict (the case itself, the proof of a
culprit).
"""

import threading
from collections import deque
from dataclasses import dataclass, field

FACTOR = 10.0
FLOOR_SECONDS = 2.0
"""Below this nothing is called a hang: files are read and compilers start at their own pace."""

UNLIMITED_FLOOR_SECONDS = 20.0
"""The same where the user set no limit at all."""

DOUBT = 4.0
"""How much longer a question may take whose limit is doubted."""

DOUBTED = 2
"""How many limits that ran out in a row must prove right before one is believed at once."""

COMMON_NODES = 50
"""What a compile costs whatever its graph holds, in nodes."""

_REMEMBERED = 32


@dataclass(slots=True)
class Patience:
    """The time limits of the questions of one operation, whoever asks them, in any thread.

    Attributes:
        limit_seconds: What the user set; None for no limit.
        answers: Nodes and seconds of the last answers.
        factor: How many times what it should take a candidate may take.
        proved: How many limits that ran out in a row proved right.
        is_hang_proved: A hang that is looked for was seen with the whole limit.
    """

    limit_seconds: float | None
    answers: deque[tuple[int, float]] = field(
        default_factory=lambda: deque[tuple[int, float]](maxlen=_REMEMBERED)
    )
    factor: float = FACTOR
    proved: int = 0
    is_hang_proved: bool = False
    _changing: threading.Lock = field(default_factory=threading.Lock)

    def seconds(self, *, is_candidate: bool, nodes: int = 0) -> float | None:
        """Return the limit of a question about a graph of so many nodes (0: nobody counts)."""
        with self._changing:
            known = tuple(self.answers)
        if not is_candidate or not known:
            return self.limit_seconds
        should = max(seconds * _share(nodes, of=theirs) for theirs, seconds in known)
        floor = UNLIMITED_FLOOR_SECONDS if self.limit_seconds is None else FLOOR_SECONDS
        return self._bounded(max(floor, self.factor * should))

    def doubted(self, limit: float) -> float | None:
        """Return the time for which to ask once more where a limit ran out; None: it is believed.

        Args:
            limit: Of a candidate.
        """
        longer = self._bounded(DOUBT * limit)
        return longer if self.proved < DOUBTED and longer > limit else None

    def busy_seconds(self, limit: float | None) -> float:
        """Return how much longer a candidate may wait for a core: until the user's limit ends."""
        if limit is None:
            return 0.0
        return (self.limit_seconds or self.factor * limit) - limit

    def note(self, seconds: float, nodes: int = 0) -> None:
        """Remember how long an answer took."""
        with self._changing:
            self.answers.append((nodes, seconds))

    def was_right(self) -> None:
        """Take note that a limit that was doubted ran out again."""
        self.proved += 1

    def was_short(self) -> None:
        """Take note that a limit that was doubted was too short."""
        self.proved = 0
        self.factor *= 2

    def _bounded(self, seconds: float) -> float:
        return seconds if self.limit_seconds is None else min(self.limit_seconds, seconds)


def _share(nodes: int, *, of: int) -> float:
    """Return which part of the time of one graph another needs: never more than all of it."""
    return min(1.0, (nodes + COMMON_NODES) / (of + COMMON_NODES))
