"""The accuracy of a case that passes, and the rule by which it got worse than a baseline.

The error of each result is measured against a float64 run, in units in the last place (ULP) of the
result's dtype; the worst one counts. It varies between machines although nothing is wrong: vector
width and threads change the order of sums, libraries and fused multiply-adds change roundings. Of
16 programs on two targets, three vector widths and one or two threads gave errors that differed by
at most 18 times, or 4.2 bits: one sum (benchmarks/results/machine_accuracy.txt). A lost dtype costs
more: float16 in place of float32 is 13 bits.
"""

import math

from ctk.toolkit.case.case import Case
from ctk.toolkit.compile_log.error_history import is_measurable, measure_error
from ctk.toolkit.execution.execute import run_compiled, run_eager, run_reference

GROWTH = 64
"""Growth of an error that fails: 6 bits, where machines differ by up to 4.2."""


def measure_worst_ulp(case: Case) -> float | None:
    """Compile a case that passes once more, and return the largest error of its results.

    Returns:
        Units in the last place; None if the program has no float64 form, no result of floating
        numbers, or an infinite error.
    """
    eager = run_eager(case)
    exact, compiled = run_reference(case, eager), run_compiled(case)
    if exact.dtype is None:
        return None
    errors: list[float] = []
    for name, value in compiled.values.items():
        truth = exact.values.get(name)
        if is_measurable(value) and is_measurable(truth) and value.shape == truth.shape:
            errors.append(measure_error(value, truth).max_ulp)
    worst = max(errors, default=None)
    return worst if worst is not None and math.isfinite(worst) else None


def is_worse(now: float, before: float) -> bool:
    """Return whether an error grew more than machines differ: by more than six bits.

    A recorded error below one ULP counts as one, because one rounding more or less is not a loss.
    """
    return now > GROWTH * max(before, 1.0)
