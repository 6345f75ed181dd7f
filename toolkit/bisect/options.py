"""Find the options of the target that change the failure; the last search of a bisection.

Candidates are the options that the case sets, at their defaults; then the `trials` of its target.
Each question is a compile with one option changed and nothing left out.

If a compile is cheap, each option is tried alone. Otherwise the culprit narrows the search:
1. Options that disable the culprit, according to the target, are tried alone.
2. If a pass is guilty, options of code generation are skipped, and no code is generated.
3. If a kernel is guilty, options that leave a trace in code are skipped unless the guilty lines
   hold it.
4. The others are changed at once: if the case still fails in the same way, none of them matters; if
   not, its halves are tried, the second only if the first does not explain the change. Here `c`
   matters, for 6 questions; if none did, it would be 1:

    a b c d e f g h   passes
    a b c d           passes
    a b               fails       so c or d matters
    c                 passes      found
    d                 fails
    e f g h           fails       none matters

Not found: an option that has an effect only together with another.
"""

import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from ctk.compiler.errors import CtkError
from ctk.toolkit.bisect.culprit import Culprit, OptionEffect, option_words
from ctk.toolkit.bisect.questions import NO_KERNELS
from ctk.toolkit.case.case import Case
from ctk.toolkit.case.judgement import Judgement, Verdict
from ctk.toolkit.compile_log.recorder import Veto
from ctk.toolkit.oracle.question import Oracle, Question
from ctk.toolkit.targets import target_of
from ctk.toolkit.targets.base import Trial

MAX_QUESTIONS = 16
INFORMATIVE = (*(each for each in Verdict if each.is_no_failure), Verdict.DIFFERENT)

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class OptionSearch:
    """The options that matter; the budget left `left` untried, because of the time if `is_late`."""

    effects: tuple[OptionEffect, ...] = ()
    questions: int = 0
    left: int = 0
    is_late: bool = False


Change = tuple[str, str | None]
"""An option, and its value as `--config` takes it; None: not set."""


@dataclass(slots=True)
class _OptionQuestions:
    case: Case
    executor: Oracle
    say: Say
    limit: int
    end: float | None = None
    questions: int = 0
    found: list[OptionEffect] = field(default_factory=list[OptionEffect])
    left: int = 0
    veto: Veto = field(default_factory=Veto)

    @property
    def is_late(self) -> bool:
        """Whether the time is over."""
        return self.end is not None and time.monotonic() >= self.end

    def leave_out_code(self, culprit: Culprit) -> None:
        """Generate no code in later questions, if the case fails without any."""
        if culprit.stage == "lowered" or self.is_late:
            return
        self.questions += 1
        answer = self.executor.ask(Question(self.case, self.case.signature, NO_KERNELS))
        self.say(f"with every kernel in eager: {answer.verdict.value}")
        if answer.verdict is Verdict.REPRODUCES:
            self.veto = NO_KERNELS

    def ask(self, changes: Sequence[Change]) -> Verdict | None:
        """Return the verdict of the case with some changes; None once the budget is used up."""
        if self.questions >= self.limit or self.is_late:
            return None
        config = dict(self.case.config)
        for option, value in changes:
            config.pop(option, None)
            if value is not None:
                config[option] = _parse_config(value)
        self.questions += 1
        verdict = self._asked(replace(self.case, config=config)).verdict
        what = option_words(*changes[0]) if len(changes) == 1 else f"{len(changes)} options changed"
        self.say(f"{what}: {verdict.value}")
        return verdict

    def _asked(self, case: Case) -> Judgement:
        try:
            return self.executor.ask(Question(case, case.signature, self.veto))
        except CtkError as error:  # a target may refuse two options together
            return Judgement(Verdict.INVALID, detail=str(error))

    def halve(self, changes: Sequence[Change], *, is_known: bool = False) -> bool:
        """Find the changes that matter among changes that can be made together; is there none?

        Args:
            is_known: Some change among them matters, so that only parts of them are tried.
        """
        if is_known and len(changes) > 1:
            return self._halve(changes)
        verdict = self.ask(changes)
        if verdict is None:
            self.left += len(changes)
        elif len(changes) > 1 and verdict is not Verdict.REPRODUCES:
            return self._halve(changes)
        elif verdict in INFORMATIVE:
            self.found.append(OptionEffect(*changes[0], verdict))
        return verdict is Verdict.REPRODUCES

    def _halve(self, changes: Sequence[Change]) -> bool:
        middle = len(changes) // 2
        is_in_second = self.halve(changes[:middle])
        self.halve(changes[middle:], is_known=is_in_second)
        return False


def options_that_matter(
    case: Case,
    executor: Oracle,
    say: Say,
    *,
    culprit: Culprit | None = None,
    limit: int = MAX_QUESTIONS,
    end: float | None = None,
) -> OptionSearch:
    """Find the options of its target that change the verdict of a failing case.

    Args:
        end: When the search ends (`time.monotonic`).
    """
    target = target_of(case.target)
    search = _OptionQuestions(case, executor, say, limit, end)
    for key in case.config:
        if key not in target.forced:
            search.halve([(key, None)])
    trials = target.trials(case.config)
    if culprit is not None and not target.is_quick:
        trials = [trial for trial in trials if _may_matter(trial, culprit)]
        search.leave_out_code(culprit)
    where = culprit.where if culprit is not None else ""
    alone = [t for t in trials if target.is_quick or where.startswith(t.culprits)]
    others = [trial for trial in trials if trial not in alone]
    for group in (*([trial] for trial in alone), others):
        if group:
            search.halve([(trial.option, config_text(trial.value)) for trial in group])
    is_late = bool(search.left) and search.is_late
    return OptionSearch(tuple(search.found), search.questions, search.left, is_late)


def _may_matter(trial: Trial, culprit: Culprit) -> bool:
    """Return whether an option can matter; one of code must have left traces in guilty lines."""
    if culprit.where.startswith(trial.culprits):
        return True
    if culprit.stage != "lowered":
        return not trial.is_of_code
    return not culprit.excerpt or trial.trace in culprit.excerpt


def confirm_options(case: Case, found: OptionSearch, executor: Oracle, say: Say) -> OptionSearch:
    """Return the options of a smaller case with the same effect on the whole one; try each."""
    search = _OptionQuestions(case, executor, say, limit=len(found.effects))
    for effect in found.effects:
        search.halve([(effect.option, effect.value)])
    questions = found.questions + search.questions
    return replace(found, effects=tuple(search.found), questions=questions)


def config_text(value: object) -> str:
    """Return a value as `--config` takes it: JSON, or a plain string that is not JSON."""
    return value if isinstance(value, str) and _parse_config(value) == value else json.dumps(value)


def _parse_config(text: str) -> object:
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        return text
