"""Questions about one case: each is a compile with parts left out; none is asked twice."""

from collections.abc import Callable
from dataclasses import dataclass, field

from ctk.toolkit.bisect.culprit import Culprit, FoundBy, Relation
from ctk.toolkit.case.case import Case
from ctk.toolkit.case.judgement import Judgement, Verdict
from ctk.toolkit.compile_log.check import Finding
from ctk.toolkit.compile_log.recorder import EVERY_KERNEL, CompileLog, Recorder, Veto
from ctk.toolkit.oracle.question import Oracle, Question
from ctk.toolkit.oracle.questions.judge import judge

Progress = Callable[[str], None]
NO_KERNELS = Veto(kernels=frozenset({EVERY_KERNEL}))


@dataclass(frozen=True, slots=True)
class ObservedCompile:
    """The result of the first, observed compile."""

    judgement: Judgement
    log: CompileLog


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
        findings: Compared values of the steps of the first compile, as far as they were needed.
    """

    case: Case
    executor: Oracle
    say: Progress
    compiles: int = 0
    answers: dict[Veto, tuple[str, Judgement]] = field(
        default_factory=dict[Veto, tuple[str, Judgement]]
    )
    findings: list[Finding] = field(default_factory=list[Finding])

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

    def passes(self, veto: Veto, what: str) -> bool:
        """Return whether the case passes, or no longer raises (then `flaky` counts too)."""
        verdict, signature = self.ask(veto, what), self.case.signature
        is_error = signature is not None and signature.kind in ("compile-error", "runtime-error")
        return verdict is Verdict.PASSES or (is_error and verdict is Verdict.FLAKY)

    def fails(self, veto: Veto, what: str) -> bool:
        """Return whether the case still fails in the same way."""
        return self.ask(veto, what) is Verdict.REPRODUCES

    def cheapest(self) -> Veto:
        """Return the veto to add to each question of a search: every kernel, if none matters."""
        return NO_KERNELS if self.fails(NO_KERNELS, "with every kernel in eager") else Veto()


def join_vetoes(one: Veto, other: Veto) -> Veto:
    """Return the union of two vetoes."""
    fuels = [fuel for fuel in (one.fuel, other.fuel) if fuel is not None]
    return Veto(
        passes=one.passes | other.passes,
        rewrites=one.rewrites | other.rewrites,
        kernels=one.kernels | other.kernels,
        fuel=min(fuels) if fuels else None,
    )


def veto_of(culprits: tuple[Culprit, ...] | list[Culprit]) -> Veto:
    """Return the veto of all culprits."""
    veto = Veto()
    for culprit in culprits:
        veto = join_vetoes(veto, culprit.veto)
    return veto
