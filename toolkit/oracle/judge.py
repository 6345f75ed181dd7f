"""Judge a case in this process: run it in eager and compiled, compare, and answer with a verdict.

Order of the questions, cheapest first:

1. Eager raises: INVALID.
2. Compiling or calling raises: a `compile-error` or `runtime-error`, whatever random ops there are.
3. Both give results: repro_templates/judging.py, the rule that a repro carries too.

What it does not do: survive a crash or a hang of the compiled program (executors/child.py runs
it in a child).
"""

import dataclasses
from collections.abc import Mapping
from functools import partial

from ctk.compiler.errors import CaseError
from ctk.compiler.observe import Observer, first_line
from ctk.repro_templates.errors import Mismatch
from ctk.repro_templates.judging import Finding, judge_runs
from ctk.repro_templates.running import Run
from ctk.repro_templates.verdict import said
from ctk.toolkit.case.case import Case
from ctk.toolkit.case.failure import Signature
from ctk.toolkit.case.raise_site import raised_in, root_error
from ctk.toolkit.oracle.judgement import Judgement, Verdict
from ctk.toolkit.processes.link import tell_alive
from ctk.toolkit.run.execute import run_compiled, run_eager, run_reference
from ctk.toolkit.run.outcome import Outcome


def judge(
    case: Case,
    *,
    expected: Signature | None = None,
    observer: Observer | None = None,
    strides: bool = False,
) -> Judgement:
    """Say whether a case still fails, and in the same way.

    Args:
        case: Only read.
        expected: The failure that is looked for; None: any failure.
        observer: Handed to the target.
        strides: Count output strides that differ from eager's as a failure (always so when
            `expected` is one).

    Returns:
        REPRODUCES with the failure seen; DIFFERENT when it is not `expected`; PASSES, INVALID or
        FLAKY.

    Raises:
        TargetError: The target is unknown or cannot be imported.
        ConfigError: The target does not take the case's config.
    """
    tell_alive()
    eager = run_eager(case)
    tell_alive()
    if eager.run is None:
        raised = said(eager.error) if eager.error else "nothing"
        return Judgement(Verdict.INVALID, detail=f"eager raises {raised}")
    try:
        compiled = run_compiled(case, observer=observer)
    except CaseError as error:
        return Judgement(Verdict.INVALID, detail=str(error))
    tell_alive()
    if compiled.run is None:
        return _answer(error_signature(compiled), expected)
    strides = strides or (expected is not None and expected.kind == "stride")
    finding = judge_runs(
        eager.run,
        compiled.run,
        eager_again=partial(_eager_again, case),
        reference=partial(_reference, case, eager),
        strides=strides,
    )
    return _judgement(finding, expected)


def error_signature(outcome: Outcome) -> Signature:
    """Return the signature of a compiled run that raised."""
    assert outcome.error is not None
    error = root_error(outcome.error)
    kind = "compile-error" if outcome.phase == "compile" else "runtime-error"
    where = raised_in(outcome.error)
    return Signature(kind, type(error).__name__, where, message=first_line(error))


def mismatch_signature(mismatch: Mismatch) -> Signature:
    """Return the signature of results that differ."""
    return Signature(mismatch.kind, output=mismatch.name, message=mismatch.detail)


def _eager_again(case: Case, more: int) -> Run:
    """Run eager once more with the seed raised by `more`; raises what it raises."""
    modes = dataclasses.replace(case.modes, seed=case.modes.seed + more)
    outcome = run_eager(dataclasses.replace(case, modes=modes))
    if outcome.run is None:
        raise outcome.error or RuntimeError("the run has no results")
    return outcome.run


def _reference(case: Case, eager: Outcome) -> tuple[Mapping[str, object], str]:
    reference = run_reference(case, eager)
    return reference.values, reference.note


def _judgement(finding: Finding, expected: Signature | None) -> Judgement:
    signatures = [mismatch_signature(mismatch) for mismatch in finding.mismatches]
    if finding.answer == "passes":
        return Judgement(Verdict.PASSES, detail=finding.detail)
    if finding.answer == "flaky":
        return Judgement(Verdict.FLAKY, signatures[0], finding.detail)
    same = [each for each in signatures if expected is not None and expected.matches(each)]
    return _answer((same or signatures)[0], expected, finding.detail)


def _answer(seen: Signature, expected: Signature | None, detail: str = "") -> Judgement:
    same = expected is None or expected.matches(seen)
    return Judgement(Verdict.REPRODUCES if same else Verdict.DIFFERENT, seen, detail)
