"""Messages between player.py and program_worker.py: one JSON object per line over pipes."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from ctk.toolkit.case.failure import FailureKind, Signature
from ctk.toolkit.case.formats.checked_types import Line
from ctk.toolkit.case.formats.schema import document
from ctk.toolkit.case.judgement import Verdict


@document
@dataclass(frozen=True, slots=True)
class Plan:
    """How a program is compiled and played.

    Attributes:
        dynamic: As for `torch.compile`; None leaves the choice to Dynamo.
        calls: Minimum number of calls; those before the last have its inputs, unless the file has
            `warmups()`.
        more: Calls after those of the program, with other sizes or values, if possible.
        fresh: Recompile before each call, so that no guard decides whether a graph is reused.
    """

    target: str = "inductor"
    config: Mapping[str, object] = field(default_factory=dict[str, object])
    dynamic: bool | None = None
    calls: int = 1
    more: tuple[str, ...] = ()
    backward: bool = False
    fresh: bool = False
    strides: bool = False


@document
@dataclass(frozen=True, slots=True)
class PlayQuestion:
    """A question: how do both sides of a program differ?"""

    path: str
    plan: Plan
    timeout_seconds: float
    memory_nbytes: int | None = None


@document
@dataclass(frozen=True, slots=True)
class PlayedDifference:
    """A result that differs, as in `repro_templates.program_compare.Difference`."""

    kind: FailureKind
    name: Line
    detail: Line
    exception: Line | None = None

    @property
    def call(self) -> int:
        """The number of its call, from 1; 0 if the process ended before it was known."""
        number = self.name.partition(".")[0].removeprefix("call")
        return int(number) if number.isdigit() else 0

    @property
    def signature(self) -> Signature:
        """The difference as a failure."""
        number = int(self.detail) if self.kind == "signal" else None
        return Signature(
            self.kind, self.exception, signal=number, output=self.name, message=self.detail
        )


@document
@dataclass(frozen=True, slots=True)
class PlayAnswer:
    """The comparison of both sides.

    Attributes:
        differences: In the order of the program; empty if they agree.
        unanswered: Why there is no answer (the program itself fails); empty if there is one.
        is_flaky: The results of the program differ from run to run.
        excuse: The verdict if they differ, and the compiler is not the cause.
        detail: The reason of the excuse.
        more: The change of the differing call against the program's own, of `CHANGES`.
        raised: The exception of eager if both sides raise it and give no results; else empty.
    """

    differences: tuple[PlayedDifference, ...] = ()
    unanswered: str = ""
    is_flaky: bool = False
    excuse: Verdict | None = None
    detail: str = ""
    breaks: tuple[str, ...] = ()
    more: Line = ""
    raised: Line = ""
