"""Find out whether a candidate makes sense where fake tensors cannot tell: run it in eager."""

from ctk.toolkit.case.case import Case
from ctk.toolkit.reduce.value_edits import tensors_of
from ctk.toolkit.run.execute import run_eager


def can_run(case: Case) -> bool | None:
    """Return whether a case runs in eager; None where that cannot be tried without harm."""
    breaks = case.signature is not None and case.signature.breaks_eager
    if breaks or any(tensor.device.type != "cpu" for tensor in tensors_of(case).values()):
        return None
    return run_eager(case).run is not None


def valid(case: Case | None) -> Case | None:
    """Return a case, None if it is known not to run: what cannot be tried, the oracle finds out."""
    return None if case is None or can_run(case) is False else case
