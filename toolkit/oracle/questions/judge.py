"""Judge a case in this process: run it in eager and compiled, compare, and answer with a verdict.

Order of the questions, cheapest first:

1. Eager raises. The compiled program raises the same (repro_templates/graph/exceptions.py): PASSES,
   the exception is the result of the program. It raises another: `other-error`. It raises nothing:
   `missing-error`, if eager raises again; else FLAKY.
2. Compiling or calling raises: a `compile-error` or `runtime-error`, with or without random ops.
3. Both give results: repro_templates/graph/judging.py, the rule that a repro carries as well.

Time and memory are measured instead: performance.py, compile_time.py. An inconsistent case is
INVALID. An eager run that breaks CUDA for this process raises `LostAccelerator`, and the caller
runs the compiled program in another process.

A crash or a hang of the compiled program ends this process, unless executors/child.py runs it.
"""

import dataclasses
from collections.abc import Mapping
from functools import partial

from ctk.compiler.errors import CaseError, CtkError, LostAccelerator
from ctk.compiler.observe import Observer, first_line
from ctk.repro_templates.graph.exceptions import Raised, alike, describe_error, is_of_a_leaf
from ctk.repro_templates.graph.excuses import Variation, varied
from ctk.repro_templates.graph.judging import RunJudgement, judge_runs
from ctk.repro_templates.graph.running import Run
from ctk.repro_templates.graph.verdict import error_line
from ctk.repro_templates.numbers.errors import Mismatch
from ctk.repro_templates.numbers.layout import layout_kinds
from ctk.toolkit.case.case import Case
from ctk.toolkit.case.failure import Signature
from ctk.toolkit.case.judgement import VERDICT_OF, Judgement, Verdict
from ctk.toolkit.case.raise_site import find_raise_site, root_error
from ctk.toolkit.compile_log.recorder import Recorder
from ctk.toolkit.execution.declared_operators import run_as_declared
from ctk.toolkit.execution.execute import (
    Outcome,
    run_eager,
    run_in_guarded_memory,
    run_private,
    run_reference,
)
from ctk.toolkit.execution.fake_run import run_fake
from ctk.toolkit.execution.kept_operators import keep_whole
from ctk.toolkit.execution.private_copy import find_raising_operator
from ctk.toolkit.oracle.questions.compile_time import judge_compile_time
from ctk.toolkit.oracle.questions.performance import judge_measured
from ctk.toolkit.processes.accelerator import has_lost_cuda
from ctk.toolkit.processes.link import report_alive


def judge(
    case: Case,
    *,
    expected: Signature | None = None,
    observer: Observer | None = None,
    eager_raised: str | None = None,
) -> Judgement:
    """Judge whether a case still fails, and in the same way.

    Args:
        eager_raised: Message of an eager kernel that broke CUDA for another process
            (`LostAccelerator`): only the compiled program runs here.

    Raises:
        TargetError: The target is unknown or cannot be imported.
        ConfigError: The target does not take the case's config.
        LostAccelerator: A kernel of the eager run has broken CUDA for this process.
    """
    refused = observer.veto.passes if isinstance(observer, Recorder) else ()
    with run_as_declared(refused), keep_whole(case, refused) as compiled_case:
        return _judge(case, compiled_case, expected, observer, eager_raised)


def _judge(
    case: Case,
    compiled_case: Case,
    expected: Signature | None,
    observer: Observer | None,
    eager_raised: str | None,
) -> Judgement:
    report_alive()
    if expected is not None and expected.is_measured:
        measure = judge_measured if expected.is_of_call else judge_compile_time
        found = measure(case, expected, observer)
        is_answer = isinstance(found, Judgement)
        return found if is_answer else _answer(error_signature(found), expected)
    eager = run_eager(case) if eager_raised is None else _lost_outcome(eager_raised)
    report_alive()
    if isinstance(eager.error, CtkError):
        return Judgement(Verdict.INVALID, detail=f"eager raises {error_line(eager.error)}")
    if is_of_a_leaf(eager.error):
        return Judgement(Verdict.INVALID, detail=LEAF)
    if eager.error is not None and eager_raised is None and has_lost_cuda():
        raise LostAccelerator(f"{describe_error(eager.error).message}\n{NEXT_ISOLATE}")
    try:
        compiled = run_in_guarded_memory(compiled_case, observer=observer)
    except CaseError as error:
        return Judgement(Verdict.INVALID, detail=str(error))
    report_alive()
    if eager.error is not None:
        return _judge_error(case, eager.error, compiled, expected)
    if compiled.run is None:
        return _answer(error_signature(compiled), expected)
    return judge_outcomes(case, eager, compiled, expected)


def judge_outcomes(
    case: Case, eager: Outcome, compiled: Outcome, expected: Signature | None = None
) -> Judgement:
    """Judge the results of a compiled program; both sides have a run."""
    assert eager.run is not None and compiled.run is not None
    finding = judge_runs(
        eager.run,
        compiled.run,
        vary=partial(_vary_eager, case),
        reference=partial(_reference, case, eager),
        layouts=layout_kinds(expected.kind if expected else None),
        fakes=None if case.modes.strides else partial(run_fake, case),
    )
    return _judgement(finding, expected)


NEXT_ISOLATE = "next: --isolate runs eager and compiled in a child process each"


LEAF = (
    "an input that requires a gradient is changed in place: the program has computed it, and a"
    " graph by itself begins with it"
)

LOST_NAME = "AcceleratorError"
_ALIKE = "eager and compiled raise"


def raises_alike(judgement: Judgement) -> bool:
    """Return whether a case passes because its program raises in eager and compiled alike."""
    return judgement.verdict is Verdict.PASSES and judgement.detail.startswith(_ALIKE)


def conclude(judgement: Judgement, uncaptured: str = "") -> Judgement:
    """Return the judgement for an answer: INVALID if it passes and nothing was compared.

    Args:
        uncaptured: Why Dynamo captured no graph of the program; empty if it captured one.
    """
    if raises_alike(judgement):
        why = f"nothing was compared: {judgement.detail}; next: give inputs that eager accepts"
    elif judgement.verdict is Verdict.PASSES and uncaptured:
        why = f"nothing was compiled: {uncaptured}"
    else:
        return judgement
    return Judgement(Verdict.INVALID, detail=why)


class _Lost(Exception):
    """Stands for the exception of eager in another process."""


def _lost_outcome(message: str) -> Outcome:
    return Outcome(None, _Lost(message))


def _judge_error(
    case: Case, error: BaseException, compiled: Outcome, expected: Signature | None
) -> Judgement:
    """Judge a program that raises in eager: the exception is its result."""
    wanted = (
        describe_error(error) if not isinstance(error, _Lost) else Raised(LOST_NAME, str(error))
    )
    if compiled.error is not None:
        seen = describe_error(compiled.error, compiling=compiled.phase == "compile")
        if alike(wanted, seen):
            is_wanted = expected is not None and expected.kind in ("missing-error", "other-error")
            detail = (
                f"compiled raises {wanted}, as eager does" if is_wanted else f"{_ALIKE} {wanted}"
            )
            return Judgement(Verdict.PASSES, detail=detail)
        message = f"{seen.message}; eager raises {wanted}"
        where = find_raise_site(compiled.error)
        return _answer(Signature("other-error", seen.name, where, message=message), expected)
    again = error if isinstance(error, _Lost) else run_eager(case).error
    if again is None or not alike(wanted, describe_error(again)):
        second = describe_error(again) if again is not None else "nothing"
        detail = f"eager raises {wanted}, and {second} when it is run again"
        return Judgement(Verdict.FLAKY, detail=detail)
    message = f"{wanted.message}; only eager raises it"
    where = None if isinstance(error, _Lost) else find_raising_operator(error) or "backward"
    return _answer(Signature("missing-error", wanted.name, where, message=message), expected)


def error_signature(outcome: Outcome) -> Signature:
    """Return the signature of a compiled run that raised.

    A broken CUDA is an `AcceleratorError`, with any exception type and at any later call.
    """
    assert outcome.error is not None
    error = root_error(outcome.error)
    name = LOST_NAME if has_lost_cuda() else type(error).__name__
    kind = "compile-error" if outcome.phase == "compile" else "runtime-error"
    where = find_raise_site(outcome.error)
    return Signature(kind, name, where, message=first_line(error))


def mismatch_signature(mismatch: Mismatch) -> Signature:
    """Return the signature of results that differ."""
    return Signature(mismatch.kind, output=mismatch.name, message=mismatch.detail)


def _vary_eager(case: Case, variation: Variation) -> Run:
    """Run eager once more under other conditions, and raise its exception if it fails."""
    report_alive()
    modes = dataclasses.replace(case.modes, seed=case.modes.seed + variation.seed)
    allocated: list[str] = []
    around = varied(variation, allocated)
    outcome = run_private(case.graph, case.inputs, modes, around=around)
    assert outcome.run is not None
    return dataclasses.replace(outcome.run, allocated=tuple(allocated))


def _reference(case: Case, eager: Outcome) -> tuple[Mapping[str, object], str]:
    reference = run_reference(case, eager)
    return reference.values, reference.note


def _judgement(finding: RunJudgement, expected: Signature | None) -> Judgement:
    signatures = [mismatch_signature(mismatch) for mismatch in finding.mismatches]
    if finding.answer != "fails":
        seen = signatures[0] if signatures else None
        return Judgement(VERDICT_OF[finding.answer], seen, finding.detail)
    same = [
        signature
        for signature in signatures
        if expected is not None and expected.matches(signature)
    ]
    return _answer((same or signatures)[0], expected, finding.detail)


def _answer(seen: Signature, expected: Signature | None, detail: str = "") -> Judgement:
    same = expected is None or expected.matches(seen)
    return Judgement(Verdict.REPRODUCES if same else Verdict.DIFFERENT, seen, detail)
