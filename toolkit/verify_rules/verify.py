"""The operation `verify_rules`: draw, try, and shrink what refutes a rule.

What it does not do: it proves nothing. `holds` says that so many accepted draws told no
difference.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from types import ModuleType
from typing import Literal

from ctk.compiler.errors import ConfigError, nearest
from ctk.toolkit.verify_rules.corners import corners
from ctk.toolkit.verify_rules.drawing import draw_near, draw_wildly, with_other_values
from ctk.toolkit.verify_rules.draws import Draw
from ctk.toolkit.verify_rules.modules import module_named
from ctk.toolkit.verify_rules.shrink import shrink
from ctk.toolkit.verify_rules.subjects import Subject, our_subjects, subjects_in
from ctk.toolkit.verify_rules.trial import Trial, again, attempt

Verdict = Literal["holds", "refuted", "never fired"]
Say = Callable[[str], None]

DRAWS = 300
"""How many accepted draws a rule gets by default."""

PATIENCE = 10
"""How many draws there are at most for each accepted one that is wanted, and `TRIES` more."""

TRIES = 400

VALUES = 3
"""With how many more sets of numbers each accepted graph is run."""

CORNERS_OF = range(3, 100_000, 40)
"""At the how many-th accepted draws the corners of the best one are looked at, if none are left."""

REMEMBERED = 60
"""How many draws that were accepted, and that the guard refused, are kept to look around."""


@dataclass(frozen=True, slots=True)
class CounterExample:
    """A draw that refutes a rule, as small as it could be made, and what it shows."""

    draw: Draw
    trial: Trial

    @property
    def said(self) -> str:
        return str(self.trial.difference)


@dataclass(frozen=True, slots=True)
class Finding:
    """What is known of one rule.

    Attributes:
        subject: The rule.
        drawn: How many draws were made.
        accepted: How many of them ran and were rewritten.
        counter: What refutes it.
    """

    subject: Subject
    drawn: int
    accepted: int
    counter: CounterExample | None = None

    @property
    def verdict(self) -> Verdict:
        if self.counter is not None:
            return "refuted"
        return "holds" if self.accepted else "never fired"


@dataclass(frozen=True, slots=True)
class VerifyReport:
    """What is known of each rule, in order. As a string: the answer in one line."""

    findings: tuple[Finding, ...]
    seed: int = 0

    @property
    def ok(self) -> bool:
        """Whether every rule holds."""
        return bool(self.findings) and all(each.verdict == "holds" for each in self.findings)

    def of(self, verdict: Verdict) -> list[Finding]:
        """Return the findings with a verdict."""
        return [each for each in self.findings if each.verdict == verdict]

    def __str__(self) -> str:
        refuted, idle = self.of("refuted"), self.of("never fired")
        names = ", ".join(f"{each.subject.pass_name}: {each.subject.name}" for each in refuted)
        if refuted:
            return f"{len(refuted)} of {len(self.findings)} rule(s) refuted: {names}"
        if not self.findings:
            return "cannot tell: there is no rule and no pass"
        if idle:
            names = ", ".join(f"{each.subject.pass_name}: {each.subject.name}" for each in idle)
            return f"cannot tell: {len(idle)} of {len(self.findings)} rule(s) never fired: {names}"
        accepted = sum(each.accepted for each in self.findings)
        return f"all {len(self.findings)} rule(s) hold on {accepted} accepted draws"


def _silent(_text: str) -> None:
    pass


def verify_rules(
    modules: Sequence[str | Path | ModuleType] = (),
    *,
    draws: int = DRAWS,
    seed: int = 0,
    rules: Iterable[str] = (),
    say: Say = _silent,
) -> VerifyReport:
    """Try rules on drawn graphs and operands: does anybody see a difference?

    Args:
        modules: Modules, their names, or files, with rule tables, rules or passes; `MODULE:NAME`
            and `FILE.py:NAME` are one of these; none: those of our own passes.
        draws: How many draws each rule must accept.
        seed: Decides every draw.
        rules: Names of rules or passes; none: all.
        say: Told what is being tried.

    Raises:
        ConfigError: A module cannot be loaded, or no rule has such a name.
    """
    found = [subject for each in modules for subject in subjects_in(*module_named(each))]
    subjects = _chosen(found if modules else our_subjects(), tuple(rules))
    findings: list[Finding] = []
    for subject in subjects:
        say(f"{subject.pass_name}: {subject.name}")
        findings.append(verify_subject(subject, draws=draws, seed=seed))
    return VerifyReport(tuple(findings), seed)


def _chosen(subjects: Sequence[Subject], names: Sequence[str]) -> list[Subject]:
    known = {each.name for each in subjects} | {each.pass_name for each in subjects}
    for name in names:
        if name not in known:
            raise ConfigError(
                f"no rule or pass is called {name!r}{nearest(name, known)}; there are: "
                f"{', '.join(sorted(known))}"
            )
    return [each for each in subjects if not names or {each.name, each.pass_name} & {*names}]


def verify_subject(subject: Subject, *, draws: int = DRAWS, seed: int = 0) -> Finding:
    """Try one rule, up to so many accepted draws or the first that refutes it."""
    search = _Search(Random(f"{seed}:{subject.pass_name}:{subject.name}"), subject)
    accepted = drawn = 0
    while accepted < draws and drawn < draws * PATIENCE + TRIES:
        draw = search.next()
        drawn += 1
        trial = attempt(subject, draw)
        accepted += trial.outcome in ("same", "differs")
        if trial.outcome == "same":
            draw, trial = _with_more_values(search.random, subject, draw, trial)
        if trial.outcome == "differs":
            return Finding(subject, drawn, accepted, _smallest(subject, draw, trial))
        search.learn(draw, trial)
    return Finding(subject, drawn, accepted)


def _with_more_values(
    random: Random, subject: Subject, draw: Draw, trial: Trial
) -> tuple[Draw, Trial]:
    """Return a draw of the same graph that differs; else the one that is known to do not."""
    for _ in range(VALUES):
        other = with_other_values(random, draw)
        seen = again(subject, trial, other)
        if seen.outcome == "differs":
            return other, seen
    return draw, trial


class _Search:
    """Chooses what to try next, by what was accepted so far.

    First the examples; then corners of a few accepted draws, draws near an accepted one or near one
    that the guard refused, and new ones.
    """

    def __init__(self, random: Random, subject: Subject) -> None:
        self.random = random
        self.subject = subject
        self.seeds = list(subject.seeds[::-1])
        self.corners: list[Draw] = []
        self.accepted: list[Draw] = []
        self.refused: list[Draw] = []
        self.count = 0

    def next(self) -> Draw:
        if self.seeds:
            return self.seeds.pop()
        kind = self.random.random()
        if self.corners and kind < 0.5:
            return self.corners.pop()
        pool = self.accepted if kind < 0.8 else self.refused if kind < 0.88 else ()
        if not self.accepted and kind < 0.6:
            pool = self.refused
        if pool:
            pair = self.random.choices(pool, k=2)
            return draw_near(self.random, max(pair, key=_elements) if kind < 0.7 else pair[0])
        return draw_wildly(self.random, self.random.choice(self.subject.programs))

    def learn(self, draw: Draw, trial: Trial) -> None:
        """Note what became of a draw that refuted nothing."""
        if trial.outcome == "same":
            self.count += 1
            self._remember(self.accepted, draw)
            if not self.corners and self.count in CORNERS_OF:
                best = max(self.accepted, key=_elements)
                self.corners = corners(self.random, best)
        elif trial.outcome == "idle":
            self._remember(self.refused, draw)

    def _remember(self, pool: list[Draw], draw: Draw) -> None:
        pool.append(draw)
        if len(pool) > REMEMBERED:
            pool.pop(self.random.randrange(len(pool)))


def _elements(draw: Draw) -> int:
    """Return how much a draw shows: one element tells less than several."""
    return sum(min(math.prod(each.shape), 8) for each in draw.tensors().values())


def _smallest(subject: Subject, draw: Draw, trial: Trial) -> CounterExample:
    assert trial.difference is not None
    kind = trial.difference.kind

    def differs(candidate: Draw) -> bool:
        seen = attempt(subject, candidate).difference
        return seen is not None and seen.kind == kind

    small = shrink(draw, differs)
    return CounterExample(small, attempt(subject, small))
