"""The operation `verify_rules`: draw graphs, apply the rule, and shrink a counter-example.

It proves nothing: `holds` means that a number of accepted draws showed no difference.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from types import ModuleType
from typing import Literal

import torch

from ctk.compiler.errors import ConfigError, count_of, nearest
from ctk.toolkit.oracle.progress import Say, silent
from ctk.toolkit.verify_rules.boundary_draws import list_boundary_draws
from ctk.toolkit.verify_rules.drawing import (
    draw_near,
    draw_randomly,
    draws_with_hints,
    with_other_values,
)
from ctk.toolkit.verify_rules.draws import Draw
from ctk.toolkit.verify_rules.operands import Constant
from ctk.toolkit.verify_rules.shrinking import shrink
from ctk.toolkit.verify_rules.subjects import (
    RuleSubject,
    load_rules_module,
    our_subjects,
    subjects_in,
)
from ctk.toolkit.verify_rules.trial import RuleTrial, try_draw, try_other_values

Verdict = Literal["holds", "refuted", "never fired"]

DRAWS = 300
"""How many accepted draws a rule gets by default."""

DRAWS_PER_ACCEPTED = 10
"""The largest number of draws per accepted draw; `TRIES` is added to the total."""

TRIES = 400

VALUES = 3
"""How many more sets of numbers each accepted graph is run with."""

FIRST = 4
"""How often each operator that a pass mentions is drawn by itself, before other draws."""

REMEMBERED = 30
"""The capacity of each pool of draws: of a family of accepted ones, of refused ones."""


@dataclass(frozen=True, slots=True)
class CounterExample:
    """A draw that refutes a rule, shrunk, and its trial."""

    draw: Draw
    trial: RuleTrial

    @property
    def summary(self) -> str:
        return str(self.trial.difference)


@dataclass(frozen=True, slots=True)
class RuleFinding:
    """The result for one rule."""

    subject: RuleSubject
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
    """The findings in order. As a string: the result in one line."""

    findings: tuple[RuleFinding, ...]
    seed: int = 0

    @property
    def ok(self) -> bool:
        """Whether every rule holds."""
        return bool(self.findings) and all(finding.verdict == "holds" for finding in self.findings)

    def of(self, verdict: Verdict) -> list[RuleFinding]:
        """Return the findings with a verdict."""
        return [finding for finding in self.findings if finding.verdict == verdict]

    def __str__(self) -> str:
        if not self.findings:
            return "cannot tell: there is no rule and no pass"
        refuted, idle = self.of("refuted"), self.of("never fired")
        names = ", ".join(str(each.subject) for each in refuted or idle)
        count = len(self.findings)
        rules = count_of(count, "rule")
        if refuted:
            return f"{len(refuted)} of {rules} refuted: {names}"
        if idle:
            return f"cannot tell: {len(idle)} of {rules} never fired: {names}"
        draws = count_of(sum(finding.accepted for finding in self.findings), "accepted draw")
        return f"{'1 rule holds' if count == 1 else f'all {count} rules hold'} on {draws}"


def verify_rules(
    modules: Sequence[str | Path | ModuleType] = (),
    *,
    draws: int = DRAWS,
    seed: int = 0,
    rules: Iterable[str] = (),
    say: Say = silent,
) -> VerifyReport:
    """Try rules on drawn graphs and operands, and look for an observable difference.

    Args:
        modules: Modules, their names, or files, with rule tables, rules or passes; `MODULE:NAME`
            and `FILE.py:NAME` name one of these; none: all passes of ctk.
        draws: How many draws each rule must accept.
        seed: Determines every draw.
        rules: Names of rules or passes; none: all.
        say: Called with the name of each subject.

    Raises:
        ConfigError: A module cannot be loaded, or a rule name is unknown.
    """
    subjects = [subject for name in modules for subject in subjects_in(*load_rules_module(name))]
    subjects = _select(subjects if modules else our_subjects(), tuple(rules))
    for subject in subjects:
        subject.load_seeds()  # an example that cannot be traced is reported before the first draw
    findings: list[RuleFinding] = []
    for subject in subjects:
        say(str(subject))
        findings.append(verify_subject(subject, draws=draws, seed=seed))
    return VerifyReport(tuple(findings), seed)


def _select(subjects: Sequence[RuleSubject], names: Sequence[str]) -> list[RuleSubject]:
    known = {subject.name for subject in subjects} | {subject.pass_name for subject in subjects}
    for name in names:
        if name not in known:
            raise ConfigError(
                f"no rule or pass is called {name!r}{nearest(name, known)}; there are: "
                f"{', '.join(sorted(known))}"
            )
    return [
        subject for subject in subjects if not names or {subject.name, subject.pass_name} & {*names}
    ]


def verify_subject(subject: RuleSubject, *, draws: int = DRAWS, seed: int = 0) -> RuleFinding:
    """Try one rule until it is refuted or has accepted `draws` draws."""
    search = _DrawSearch(Random(f"{seed}:{subject.pass_name}:{subject.name}"), subject)
    accepted = drawn = 0
    while accepted < draws and drawn < draws * DRAWS_PER_ACCEPTED + TRIES:
        draw = search.next()
        drawn += 1
        trial = try_draw(subject, draw)
        accepted += trial.outcome in ("same", "differs")
        if trial.outcome == "same":
            draw, trial = _with_more_values(search.random, subject, draw, trial)
        if trial.outcome == "differs":
            counter = _shrink_counter_example(subject, draw, trial)
            return RuleFinding(subject, drawn, accepted, counter)
        search.learn(draw, trial)
    return RuleFinding(subject, drawn, accepted)


def _with_more_values(
    random: Random, subject: RuleSubject, draw: Draw, trial: RuleTrial
) -> tuple[Draw, RuleTrial]:
    """Return a draw of the same graph that differs; else the given one."""
    for _ in range(VALUES):
        other = with_other_values(random, draw)
        other_trial = try_other_values(subject, trial, other)
        if other_trial.outcome == "differs":
            return other, other_trial
    return draw, trial


@dataclass(slots=True)
class _Family:
    """Accepted draws of one kind.

    Attributes:
        boundaries: The boundary draws left to try; None: not listed yet.
    """

    draws: list[Draw] = field(default_factory=list[Draw])
    boundaries: list[Draw] | None = None
    tried: int = 0


class _DrawSearch:
    """Chooses the next draw by the outcomes of earlier draws.

    First the examples, each operator by itself, and the numbers that a pass mentions; then
    boundaries of accepted draws, mutations of accepted and of refused draws, and new draws.
    Accepted draws are kept in families of equal calls and kinds of numbers. The family that was
    chosen least comes first, and few calls before many, so that programs that fire easily take no
    draws from programs that fire seldom.

    Source: M. Böhme et al., Coverage-based Greybox Fuzzing as Markov Chain (AFLFast, CCS 2016),
    which prefers seeds on rare paths; here the arguments of the calls take the role of the path.
    """

    def __init__(self, random: Random, subject: RuleSubject) -> None:
        self.random = random
        self.subject = subject
        self.seeds = list(subject.load_seeds()[::-1])
        self.families: dict[object, _Family] = {}
        self.refused: list[Draw] = []
        alone = [program for program in subject.programs if len(program.calls) == 1]
        self.first = [draw_randomly(random, each) for each in alone for _ in range(FIRST)]
        self.first += [
            draw for program in subject.programs for draw in draws_with_hints(random, program)
        ]
        random.shuffle(self.first)
        if subject.grammar is None:
            self.first.clear()  # the pattern of a rule suffices

    def next(self) -> Draw:
        if self.seeds:
            return self.seeds.pop()
        if self.first:
            return self.first.pop()
        kind = self.random.random()
        if self.families and kind < 0.72:
            return self._around(is_boundary=kind < 0.5)
        if self.refused and kind < (0.8 if self.families else 0.4):
            return draw_near(self.random, self.random.choice(self.refused))
        return self._new()

    def _around(self, *, is_boundary: bool) -> Draw:
        some = self.random.sample(list(self.families.values()), min(3, len(self.families)))
        family = min(some, key=lambda each: each.tried * len(each.draws[0].program.calls) ** 2)
        family.tried += 1
        if is_boundary and (
            family.boundaries or family.boundaries is None or family.tried % 100 == 0
        ):
            if not family.boundaries:
                family.boundaries = list_boundary_draws(
                    self.random, max(family.draws, key=_elements)
                )
            return family.boundaries.pop()
        pair = self.random.choices(family.draws, k=2)
        return draw_near(self.random, max(pair, key=_elements))

    def _new(self) -> Draw:
        grammar = self.subject.grammar
        if grammar is not None and self.random.random() < 0.6:
            return draw_randomly(self.random, grammar.grow(self.random))
        return draw_randomly(self.random, self.random.choice(self.subject.programs))

    def learn(self, draw: Draw, trial: RuleTrial) -> None:
        """Record the outcome of a draw that refuted nothing."""
        if trial.outcome == "same":
            self._remember(self.families.setdefault(_kind(draw), _Family()).draws, draw)
        elif trial.outcome == "idle":
            self._remember(self.refused, draw)

    def _remember(self, pool: list[Draw], draw: Draw) -> None:
        pool.append(draw)
        if len(pool) > REMEMBERED:
            pool.pop(self.random.randrange(len(pool)))


def _kind(draw: Draw) -> object:
    """Return the key of a draw's family: calls, words, and kinds of numbers."""
    calls = tuple((call.target, len(call.args), *call.kwargs) for call in draw.program.calls)
    values = (each.value for each in draw.bound.values() if isinstance(each, Constant))
    words = tuple(value for value in values if value is None or isinstance(value, (bool, str)))
    dtypes = {
        (tensor.dtype.is_floating_point, tensor.dtype.is_complex, tensor.dtype is torch.bool)
        for tensor in draw.tensors().values()
    }
    return calls, words, frozenset(dtypes)


def _elements(draw: Draw) -> int:
    """Return the weight of a draw: several elements reveal more than one."""
    return sum(min(math.prod(tensor.shape), 8) for tensor in draw.tensors().values())


def _shrink_counter_example(subject: RuleSubject, draw: Draw, trial: RuleTrial) -> CounterExample:
    assert trial.difference is not None
    kind = trial.difference.kind

    def differs(candidate: Draw) -> bool:
        difference = try_draw(subject, candidate).difference
        return difference is not None and difference.kind == kind

    small = shrink(draw, differs)
    return CounterExample(small, try_draw(subject, small))
