"""Questions about one case: each is a compile with parts left out; none is asked twice.

With the values compared on the way to the culprit, their answers also rule causes out.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from ctk.toolkit.bisect.culprit import Culprit, FoundBy, Relation
from ctk.toolkit.case.case import Case
from ctk.toolkit.case.failure import Signature
from ctk.toolkit.case.judgement import Judgement, Verdict
from ctk.toolkit.compile_log.check import Finding
from ctk.toolkit.compile_log.recorder import EVERY_KERNEL, CompileLog, Recorder, Veto
from ctk.toolkit.oracle.question import Oracle, Question
from ctk.toolkit.oracle.questions.judge import judge

Progress = Callable[[str], None]
NO_KERNELS = Veto(kernels=frozenset({EVERY_KERNEL}))
MOST_ALTERNATIVES = 4
"""Most suspects besides the culprit without which the case is asked about alone."""

_SHOWN, _WITHOUT = 3, "without "
"""How many questions are listed as exclusions; the rest is counted."""


@dataclass(frozen=True, slots=True)
class ObservedCompile:
    """The result of the first, observed compile.

    Attributes:
        findings: The compared values of its steps, as far as they were needed.
    """

    judgement: Judgement
    log: CompileLog
    findings: list[Finding] = field(default_factory=list[Finding], repr=False)


@dataclass(frozen=True, slots=True)
class CulpritSet:
    """The culprits of a strategy: without all of these, and nothing else, the case passes."""

    found_by: FoundBy
    culprits: tuple[Culprit, ...]
    relation: Relation | None = None
    reason: str = ""


@dataclass(slots=True)
class Questions:
    """Compiles one case with parts left out, and counts the compiles.

    Attributes:
        answers: Description and judgement of each veto.
        notes: Faults of the program that do not explain the failure, and operators that are right
            alone; a sentence each.
    """

    case: Case
    executor: Oracle
    say: Progress
    compiles: int = 0
    answers: dict[Veto, tuple[str, Judgement]] = field(
        default_factory=dict[Veto, tuple[str, Judgement]]
    )
    notes: list[str] = field(default_factory=list[str])

    def observe(self, veto: Veto, what: str) -> ObservedCompile:
        """Compile in this process, and record everything."""
        self.say(what)
        self.compiles += 1
        recorder = Recorder(veto, keep_rewrites=True, keep_calls=True)
        judgement = judge(self.case, expected=self.case.signature, observer=recorder)
        return ObservedCompile(judgement, recorder.log)

    def ask(self, veto: Veto, what: str) -> Verdict:
        """Compile without the parts that `veto` names."""
        if veto not in self.answers:
            self.compiles += 1
            answer = self.executor.ask(Question(self.case, self.case.signature, veto))
            self.answers[veto] = (what, answer)
            self.say(f"{what}: {answer.verdict.value}")
        return self.answer(veto).verdict

    def answer(self, veto: Veto) -> Judgement:
        """Return the judgement of an earlier question.

        Raises:
            KeyError: The question was not asked.
        """
        return self.answers[veto][1]

    def ask_other(self, case: Case, what: str) -> Judgement:
        """Compile another case, which is a part of this one."""
        self.compiles += 1
        answer = self.executor.ask(Question(case, None, Veto()))
        self.say(f"{what}: {answer.verdict.value}")
        return answer

    def passes(self, veto: Veto, what: str) -> bool:
        """Return whether the case passes, or no longer raises (then `flaky` counts too)."""
        verdict, signature = self.ask(veto, what), self.case.signature
        is_error = signature is not None and signature.kind in ("compile-error", "runtime-error")
        return verdict.is_no_failure or (is_error and verdict is Verdict.FLAKY)

    def fails(self, veto: Veto, what: str) -> bool:
        """Return whether the case still fails in the same way."""
        return self.ask(veto, what) is Verdict.REPRODUCES

    def cheapest(self) -> Veto:
        """Return the veto to add to each question of a search: every kernel, if none matters."""
        return NO_KERNELS if self.fails(NO_KERNELS, "with every kernel in eager") else Veto()


def join_vetoes(*vetoes: Veto) -> Veto:
    """Return the union of vetoes."""
    return Veto(
        passes=frozenset().union(*(veto.passes for veto in vetoes)),
        rewrites=frozenset().union(*(veto.rewrites for veto in vetoes)),
        kernels=frozenset().union(*(veto.kernels for veto in vetoes)),
        fuel=min((veto.fuel for veto in vetoes if veto.fuel is not None), default=None),
    )


def veto_of(culprits: Iterable[Culprit]) -> Veto:
    """Return the veto of all culprits."""
    return join_vetoes(*(culprit.veto for culprit in culprits))


def list_exclusions(
    ask: Questions, seen: ObservedCompile, culprits: Sequence[Culprit] = ()
) -> tuple[str, ...]:
    """Return the causes that are ruled out, in sentences for people; that costs no question.

    values     step1 ok, step2 ok, joint/fold wrong   the 2 steps before joint/fold keep all values
    answers    without joint/cse: reproduces          removing joint/cse does not help
               with every kernel in eager: reproduces running every kernel in eager does not help
    """
    by_values = _by_values(seen.findings)
    return (
        *_by_eager(seen.judgement.signature),
        *ask.notes,
        *by_values,
        *_by_answers(ask, culprits),
    )


def _by_eager(signature: Signature | None) -> Iterator[str]:
    if signature is not None and signature.is_numeric:
        yield "eager, run twice, agrees with itself: neither a race nor random numbers"
    if signature is not None and signature.kind == "missing-error":
        yield "eager, run twice, raises the same"


def _by_values(findings: Sequence[Finding]) -> Iterator[str]:
    """Yield the steps with right values, up to the first wrong step."""
    wrong = next((i for i, each in enumerate(findings) if each.status == "wrong"), len(findings))
    fine = [finding for finding in findings[:wrong] if finding.status == "ok" and finding.compared]
    values = sum(each.compared for each in fine)
    if not fine:
        return
    steps = "step" if len(fine) == 1 else f"{len(fine)} steps"
    keep = f"keep{'s' * (len(fine) == 1)} all {values} values" if values > 1 else "keeps its value"
    if wrong < len(findings):
        yield f"the {steps} before {findings[wrong].where} {keep}"
    else:
        yield f"the {steps} that can be compared {keep}"


def _by_answers(ask: Questions, culprits: Sequence[Culprit]) -> Iterator[str]:
    failing = {
        veto: what
        for veto, (what, judgement) in ask.answers.items()
        if judgement.verdict is Verdict.REPRODUCES
    }
    is_below = any(culprit.stage == "lowered" for culprit in culprits)
    if not is_below and NO_KERNELS in failing:
        yield "running every kernel in eager does not help: generated code is not to blame"
    blamed = [culprit.veto for culprit in culprits]
    alone = [
        what.removeprefix(_WITHOUT)
        for veto, what in failing.items()
        if _is_single(veto) and veto not in blamed and what.startswith(_WITHOUT)
    ]
    for name in alone[:_SHOWN]:
        yield f"removing {name} does not help"
    if len(alone) > _SHOWN:
        yield f"nor does removing {len(alone) - _SHOWN} more, each alone"


def _is_of_operators(veto: Veto) -> bool:
    """Return whether a veto is about custom operators, which `Questions.notes` holds already."""
    return any(each.startswith("operator/") for each in veto.passes)


def _is_single(veto: Veto) -> bool:
    if veto.fuel is not None or veto == NO_KERNELS or _is_of_operators(veto):
        return False
    return len(veto.passes) + len(veto.rewrites) + len(veto.kernels) == 1
