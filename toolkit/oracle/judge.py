"""Judge a case in this process: run it in eager and compiled, compare, and answer with a verdict.

Order of the questions, cheapest first; later ones are asked only when they matter:

1. Eager raises: INVALID.
2. Compiling or calling raises: a `compile-error` or `runtime-error`, whatever random ops there are.
3. All results equal bit for bit: PASSES; nothing else is run.
4. The float64 reference, then the comparison: no mismatch is PASSES.
5. A mismatch in numbers is believed only when the program is repeatable: eager, run again with the
   same seed, must agree with itself, else FLAKY. This is also asked before eager's own error
   excuses a difference: a program that is not repeatable is far from its reference by chance.
6. If the program draws random numbers, the compiled call must have drawn the same: both started
   from the same seed, so both must leave torch's generators in the same state. If not, only results
   that do not depend on the seed count (those that eager gives bit for bit with another seed too);
   no such mismatch is FLAKY, never a guess.

Mismatches of dtype, shape, stride and structure do not depend on numbers: 5 and 6 do not apply
to them.

What it does not do: survive a crash or a hang of the compiled program (oracle/pool.py runs it in a
child).
"""

import dataclasses
from collections.abc import Sequence

import torch

from ctk.compiler.errors import CaseError
from ctk.compiler.observe import Observer, first_line
from ctk.toolkit.case.case import Case
from ctk.toolkit.case.failure import Signature
from ctk.toolkit.case.raise_site import raised_in, root_error
from ctk.toolkit.numerics.compare import Mismatch, compare_results, results_identical
from ctk.toolkit.numerics.errors import identical
from ctk.toolkit.oracle.judgement import Judgement, Verdict
from ctk.toolkit.run.execute import Outcome, run_compiled, run_eager, run_reference

NUMBERS = ("accuracy", "nan")
"""Kinds of mismatch that random numbers and races can cause."""

EXCUSED = "differs from eager, but is no farther than eager from the float64 run"
OTHER_DRAWS = "the program draws random numbers, and the target does not draw the same ones"


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
    eager = run_eager(case)
    if eager.results is None:
        return Judgement(Verdict.INVALID, detail=f"eager raises {_said(eager.error)}")
    try:
        compiled = run_compiled(case, observer=observer)
    except CaseError as error:
        return Judgement(Verdict.INVALID, detail=str(error))
    if compiled.error is not None:
        return _answer(error_signature(compiled), expected)
    strides = strides or (expected is not None and expected.kind == "stride")
    if not strides and results_identical(eager, compiled):
        return Judgement(Verdict.PASSES, detail="equal to eager, bit for bit")
    return _judge_values(case, eager, compiled, expected, strides=strides)


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


def _judge_values(
    case: Case, eager: Outcome, compiled: Outcome, expected: Signature | None, *, strides: bool
) -> Judgement:
    reference = run_reference(case, eager)
    found = compare_results(eager, compiled, reference, strides=strides)
    apart = found or compare_results(eager, compiled, strides=strides)
    if not apart:
        return Judgement(Verdict.PASSES, detail=reference.note)
    certain = [mismatch for mismatch in found if mismatch.kind not in NUMBERS]
    unsteady = None if certain else _unsteady(case, eager)
    if unsteady:
        return Judgement(Verdict.FLAKY, mismatch_signature(apart[0]), unsteady)
    if not found:
        return Judgement(Verdict.PASSES, detail=EXCUSED)
    believed = certain or _believed(case, eager, compiled, found)
    if not believed:
        return Judgement(Verdict.FLAKY, mismatch_signature(found[0]), OTHER_DRAWS)
    signatures = [mismatch_signature(mismatch) for mismatch in believed]
    same = [each for each in signatures if expected is not None and expected.matches(each)]
    return _answer((same or signatures)[0], expected, reference.note)


def _unsteady(case: Case, eager: Outcome) -> str | None:
    """Return why the program is not repeatable in eager under one seed, or None."""
    again = run_eager(case)
    if again.results is None:
        return f"a second eager run raises {_said(again.error)}"
    found = compare_results(eager, again)
    return f"two eager runs differ at {found[0].name}: {found[0].detail}" if found else None


def _believed(
    case: Case, eager: Outcome, compiled: Outcome, found: Sequence[Mismatch]
) -> Sequence[Mismatch]:
    """Return the mismatches in numbers that other random draws cannot explain."""
    if not eager.drew_random or _same_draws(eager, compiled):
        return found
    steady = _seed_independent(case, eager)
    return [mismatch for mismatch in found if mismatch.name in steady]


def _same_draws(eager: Outcome, compiled: Outcome) -> bool:
    if len(eager.generators) != len(compiled.generators):
        return False
    pairs = zip(eager.generators, compiled.generators, strict=True)
    return all(torch.equal(a, b) for a, b in pairs)


def _seed_independent(case: Case, eager: Outcome) -> frozenset[str]:
    """Return the results that eager gives under another seed too."""
    modes = dataclasses.replace(case.modes, seed=case.modes.seed + 1)
    other = run_eager(dataclasses.replace(case, modes=modes))
    known = {result.name: result.value for result in other.results or ()}
    return frozenset(r.name for r in eager.results or () if identical(r.value, known.get(r.name)))


def _answer(seen: Signature, expected: Signature | None, detail: str = "") -> Judgement:
    same = expected is None or expected.matches(seen)
    return Judgement(Verdict.REPRODUCES if same else Verdict.DIFFERENT, seen, detail)


def _said(error: BaseException | None) -> str:
    return f"{type(error).__name__}: {first_line(error)}" if error else "nothing"
