"""The verdict of torch's own comparison, `torch._dynamo.utils.same`, beside that of ctk.

torch asks reporters for it: eager, compiled and a float64 run, at its default tolerance.
"""

from dataclasses import dataclass

from ctk.compiler.torch_compat.dynamo.same_results import TOLERANCE, are_same
from ctk.toolkit.bug_report.short_script import COMPARED
from ctk.toolkit.case.case import Case
from ctk.toolkit.case.failure import Signature
from ctk.toolkit.execution.execute import Outcome, run_compiled, run_eager, run_reference


@dataclass(frozen=True, slots=True)
class TorchVerdict:
    """The answer of `same`.

    Attributes:
        is_same: Whether it accepts the compiled results.
        message: Its own words about a difference; empty for none.
        note: Why there is no float64 reference; empty if there is one.
    """

    is_same: bool
    message: str
    note: str = ""

    @property
    def words(self) -> str:
        """The answer in one line."""
        reference = "without a float64 reference" if self.note else "with a float64 reference"
        short = self.message.partition(", use_larger")[0]
        said = f"; {short}" if self.message and not self.is_same else ""
        return f"{self.is_same} ({reference}, tol={TOLERANCE:g}, equal_nan=True{said})"

    def disagreement(self, signature: Signature) -> str:
        """Return a sentence if the answer is not that of ctk; else nothing."""
        if not self.is_same:
            return ""
        if signature.is_numeric:
            return (
                "torch's own comparison accepts this difference at its tolerance; ctk does not: "
                "its error is beyond the tolerance of the dtype and ten times eager's own error. "
                "A reader may call it numerical noise."
            )
        return f"`same` does not look at a {signature.kind}, so it accepts the results."


def ask_torch(case: Case) -> TorchVerdict | None:
    """Run a case in eager, compiled and in float64, and compare as torch does.

    Returns:
        None where there are no results to compare: the failure is not a difference of results.
    """
    if case.signature is None or case.signature.kind not in COMPARED:
        return None
    eager = run_eager(case)
    compiled = run_compiled(case)
    if eager.run is None or compiled.run is None:
        return None
    reference = run_reference(case, eager)
    has_reference = reference.dtype is not None
    expected, actual, exact = (_results(each) for each in (eager, compiled, reference))
    answer, message = are_same(expected, actual, exact if has_reference else None)
    return TorchVerdict(answer, message, "" if has_reference else reference.note or "none")


def _results(outcome: Outcome) -> dict[str, object]:
    return {name: value for name, value in outcome.values.items() if value is not None}
