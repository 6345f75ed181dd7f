"""The proof that a result is minimal: the refusal of each edit that would make it smaller.

    remove    without mul_2          passes
    remove    without relu           different: compile-error in joint/fold
    cut       inputs in place of x   leaves no program that makes sense

An edit that exceeds the whole time limit, or whose verdict is flaky, is undecided. An edit that a
step could not try is listed with the reason (`leave_open`).
"""

import dataclasses
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import cast

from ctk.toolkit.case.formats.checked_types import Line
from ctk.toolkit.case.formats.plain_text import one_line
from ctk.toolkit.case.formats.schema import document
from ctk.toolkit.case.judgement import Judgement, Verdict
from ctk.toolkit.reduce.edits import Edit
from ctk.toolkit.reduce.size import Measured
from ctk.toolkit.reduce.subgraph_edits import SubgraphEdit

UNDECIDED = (Verdict.TIMEOUT, Verdict.FLAKY)
"""Verdicts that leave open whether a candidate fails."""


@document
@dataclass(frozen=True, slots=True)
class Refusal:
    """The refusal of one edit of the result.

    Attributes:
        edit: The change, in the user's words.
        verdict: The verdict; None if no question was asked.
        why: The failure seen, or why no question was asked.
        about: Names of the nodes and inputs that it would change.
    """

    step: Line
    edit: Line
    verdict: Verdict | None
    why: Line = ""
    about: tuple[Line, ...] = ()


@dataclass(slots=True)
class Certificate:
    """The refused edits of one case.

    Attributes:
        reasons: Why a finished step has not tried each of its edits, by step.
        neighbour: The largest candidate that passes: the closest to the result.
        has_open: A time limit shorter than the whole one has ended an edit.
    """

    refusals: dict[tuple[str, str], Refusal] = field(default_factory=dict[tuple[str, str], Refusal])
    steps: set[str] = field(default_factory=set[str])
    reasons: dict[str, dict[str, None]] = field(default_factory=dict[str, dict[str, None]])
    neighbour: Measured | None = None
    neighbour_edit: Refusal | None = None
    has_open: bool = False

    def leave_open(self, step: str, why: str) -> None:
        """Record why a step does not try each of its edits, in one line for people."""
        self.reasons.setdefault(step, {})[_line(why)] = None

    def unfinished(self, steps: Iterable[str]) -> tuple[str, ...]:
        """Return the steps with untried or undecided edits: `STEP` or `STEP: why`."""
        reasons = {
            step: [*self.reasons.get(step, ()), *self._count_undecided(step)] for step in steps
        }
        return tuple(
            one_line(f"{step}: {'; '.join(why)}") if why else step
            for step, why in reasons.items()
            if why or step not in self.steps
        )

    def _count_undecided(self, step: str) -> Iterator[str]:
        seen = Counter(
            refusal.verdict.value
            for (name, _), refusal in self.refusals.items()
            if name == step and step in self.steps and refusal.verdict in UNDECIDED
        )
        if seen:
            counts = ", ".join(f"{count} {verdict}" for verdict, count in seen.items())
            yield f"not decided: {counts}"

    def skip(self, step: str, edit: Edit, why: str) -> None:
        """Record an edit that was refused without a question."""
        text = edit.says()
        self.refusals[step, text] = Refusal(step, text, None, why, names_of(edit))

    def refuse(self, step: str, edit: Edit, judgement: Judgement, candidate: Measured) -> None:
        """Record an edit that does not reproduce."""
        seen = _line(judgement.signature or judgement.detail)
        refusal = Refusal(step, edit.says(), judgement.verdict, seen, names_of(edit))
        self.refusals[step, refusal.edit] = refusal
        is_closer = self.neighbour is None or self.neighbour < candidate
        if judgement.verdict is Verdict.PASSES and is_closer:
            self.neighbour, self.neighbour_edit = candidate, refusal


def _line(text: object) -> str:
    return str(text).partition("\n")[0]


def names_of(edit: Edit) -> tuple[str, ...]:
    """Return the names of nodes, inputs and options that an edit takes away or changes.

    RemoveNodes(("mul", "relu"))                              mul, relu
    Replace((("mul", "x"),))                                  mul     the first goes, x stays
    SubgraphEdit(("true_0",), RemoveNodes(("relu",)))         true_0.relu
    """
    if isinstance(edit, SubgraphEdit):
        path = ".".join(edit.path)
        return tuple(f"{path}.{name}" for name in names_of(edit.edit))
    if not dataclasses.is_dataclass(edit):
        return ()
    values = [getattr(edit, each.name) for each in dataclasses.fields(edit)]
    parts = [part for value in values for part in (value if isinstance(value, tuple) else (value,))]
    return tuple(dict.fromkeys(name for part in parts for name in _first_text(part)))


def _first_text(part: object) -> list[str]:
    """Return the first text of a tuple or dataclass, or the text itself; nothing if none is."""
    values: Iterable[object] = (part,)
    if isinstance(part, tuple):
        values = cast("tuple[object, ...]", part)
    elif dataclasses.is_dataclass(part):
        values = [getattr(part, each.name) for each in dataclasses.fields(part)]
    return [value for value in values if isinstance(value, str)][:1]
