"""Ablation: with which backend a case fails first, and which part of that backend must go.

The questions are those of torch's `CompilerBisector`, the answers those of ctk's oracle:

    backend                      left out             verdict
    eager                                             passes
    aot_eager                                         passes
    aot_eager_decomp_partition                        passes
    inductor                                          reproduces     the first that fails
    inductor                     decomposition        reproduces
    inductor                     joint_graph_passes   passes         the subsystem
    inductor                     lowerings            reproduces

Each row is one compile. A part is left out by a veto of all its passes; torch itself changes
options for some, and these are read from its table, so that a newer release brings its own.
"""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from ctk.compiler.errors import CtkError
from ctk.compiler.observe import first_line
from ctk.compiler.torch_compat.inductor import bisector
from ctk.toolkit.bisect.questions import NO_KERNELS
from ctk.toolkit.case.case import Case
from ctk.toolkit.case.formats.schema import document
from ctk.toolkit.case.judgement import Judgement, Verdict
from ctk.toolkit.compile_log.recorder import EVERY_DECOMPOSITION, Veto
from ctk.toolkit.end_to_end.layers import are_alike
from ctk.toolkit.oracle.question import Oracle, Question
from ctk.toolkit.targets import target_of

NOT_ASKED = "not asked: out of time"


@document
@dataclass(frozen=True, slots=True)
class AblationRow:
    """One question and its answer.

    Attributes:
        without: The part that is left out, or the changed option; empty for the whole backend.
        answer: The verdict in a word; if the question is refused, the reason.
    """

    backend: str
    without: str
    answer: str
    fails: bool = False
    passes: bool = False


@dataclass(frozen=True, slots=True)
class Ablation:
    """The rows, and the first backend and its first part on which the failure depends."""

    rows: tuple[AblationRow, ...]
    backend: str | None = None
    subsystem: str | None = None

    def result(self, culprit: str) -> str:
        """Return the last line of a bisection of torch, with the culprit as its information."""
        if self.backend is None:
            return "no backend fails in the same way"
        return bisector.result_text(self.backend, self.subsystem, culprit or None)


@dataclass(frozen=True, slots=True)
class Ablations:
    """Asks the questions about one case.

    Attributes:
        culprit: The known one: of several parts, it decides which one counts.
        end: When to stop (`time.monotonic`).
    """

    case: Case
    oracle: Oracle
    say: Callable[[str], None]
    end: float
    culprit: str = ""

    def run(self) -> Ablation:
        """Ask about the backends, then about the parts of the first that fails."""
        rows: list[AblationRow] = []
        for backend in self._backends():
            rows.append(self._ask(backend, "", self._compiled_by(backend), None))
            if rows[-1].fails:
                return self._ask_parts(backend, rows)
        return Ablation(tuple(rows))

    def _ask_parts(self, backend: str, rows: list[AblationRow]) -> Ablation:
        """Ask about the parts of the first backend that fails, whose row is the last one."""
        asked, passing = [*rows], list[str]()
        for name, (case, veto) in self._parts(backend, self._compiled_by(backend)):
            asked.append(self._ask(backend, name, case, veto))
            if asked[-1].passes:
                passing = [name, *passing] if self._leaves_out_culprit(veto) else [*passing, name]
        return Ablation(tuple(asked), rows[-1].backend, next(iter(passing), None))

    def _leaves_out_culprit(self, veto: Veto) -> bool:
        starts = tuple(each.removesuffix("*") for each in veto.passes)
        return bool(starts) and self.culprit.startswith(starts)

    def _backends(self) -> Iterator[str]:
        """Yield the backends of torch below the target, then the target."""
        target = self.case.target
        for backend in bisector.backends_below_inductor():
            if backend == target:
                break
            yield backend
        yield target

    def _compiled_by(self, backend: str) -> Case:
        same = backend == self.case.target
        return self.case if same else replace(self.case, target=backend, config={}, sources=())

    def _parts(self, backend: str, case: Case) -> Iterator[tuple[str, tuple[Case, Veto]]]:
        """Yield each part of a backend by torch's name, with the question that leaves it out."""
        for name, veto in _vetoes(backend, is_training=case.modes.grad and case.modes.backward):
            yield name, (case, veto)
        if not target_of(backend).settings:
            return
        config = target_of(backend).effective(case.config)
        changes = [*bisector.inductor_changes()]
        changes += [("triton.cudagraphs", False)] * bool(config.get("triton.cudagraphs"))
        for option, value in changes:
            if config.get(option, target_of(backend).defaults.get(option)) != value:
                changed = replace(case, config={**case.config, option: value})
                yield f"inductor_{option}", (changed, Veto())

    def _ask(self, backend: str, without: str, case: Case, veto: Veto | None) -> AblationRow:
        name = Path(backend).name  # without the folder of a file
        if time.monotonic() >= self.end:
            return AblationRow(name, without, NOT_ASKED)
        question = Question(case, case.signature, veto)
        try:
            seen = self.oracle.ask(question)
        except (CtkError, ImportError) as error:  # a missing backend, a refused option
            return AblationRow(name, without, f"cannot tell: {first_line(error)}")
        what = f"{name} without {without}" if without else name
        self.say(f"{what}: {seen.verdict.value}")
        fails = seen.verdict is Verdict.REPRODUCES or _fails_alike(self.case, seen)
        why = f": {seen.detail}" if seen.verdict is Verdict.INVALID and seen.detail else ""
        passes = seen.verdict.is_no_failure
        return AblationRow(name, without, f"{seen.verdict.value}{why}", fails, passes)


def _fails_alike(case: Case, seen: Judgement) -> bool:
    return are_alike(Judgement(Verdict.REPRODUCES, case.signature), seen)


def _vetoes(backend: str, *, is_training: bool) -> Iterator[tuple[str, Veto]]:
    """Yield the parts that a veto leaves out, in the order of the pipeline."""
    if backend == "eager":
        return
    lowerings = target_of(backend).lowerings
    if lowerings:
        yield "pre_grad_passes", Veto(passes=frozenset({"pre_grad/*"}))
    yield "fake tensors", Veto(passes=frozenset({"dispatch/meta.*"}))
    yield "decomposition", Veto(passes=frozenset({EVERY_DECOMPOSITION}))
    if is_training:
        yield "partition", Veto(passes=frozenset({"joint/partition"}))
    if lowerings:
        yield "joint_graph_passes", Veto(passes=frozenset({"joint/*"}))
        yield "post_grad_passes", Veto(passes=frozenset({"forward/*", "backward/*", "frozen/*"}))
        yield "lowerings", Veto(passes=frozenset({lowerings}))
    if not backend.startswith("aot_eager"):
        yield "generated code", NO_KERNELS
