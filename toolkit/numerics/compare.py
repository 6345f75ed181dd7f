"""Compare the outcomes of two runs; the numeric rule itself is repro_templates/compare.py.

What it does not do: it runs nothing, and it does not say whether a difference reproduces an earlier
one (oracle/judge.py).
"""

from collections.abc import Mapping, Sequence

from ctk.compiler.errors import CtkError
from ctk.compiler.observe import Numerics
from ctk.repro_templates.compare import compare_runs, runs_identical
from ctk.repro_templates.errors import Mismatch
from ctk.toolkit.run.outcome import Outcome, Result

Results = Outcome | Sequence[Result]


def compare_results(
    eager: Results,
    compiled: Results,
    reference: Results | None = None,
    numerics: Numerics = "reassociates",
    *,
    strides: bool = False,
) -> tuple[Mismatch, ...]:
    """Return every mismatch between two runs, as `compare_runs` does.

    Raises:
        CtkError: One of them is the outcome of a run that raised.
    """
    exact = None if reference is None else values_of(reference)
    return compare_runs(values_of(eager), values_of(compiled), exact, numerics, strides=strides)


def results_identical(eager: Results, compiled: Results) -> bool:
    """Return whether two runs agree bit for bit (then no reference is needed), strides aside."""
    return runs_identical(values_of(eager), values_of(compiled))


def values_of(run: Results) -> Mapping[str, object]:
    """Return the results of a run by name, in their order.

    Raises:
        CtkError: It is the outcome of a run that raised.
    """
    results = run.results if isinstance(run, Outcome) else run
    if results is None:
        error = run.error if isinstance(run, Outcome) else None
        raise CtkError(f"nothing to compare: the run raised {type(error).__name__}: {error}")
    return {result.name: result.value for result in results}
