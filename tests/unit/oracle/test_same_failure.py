"""The oracle of a reduction: what its questions leave out, and what they hold a candidate to."""

import pytest

from ctk.toolkit.bisect.questions import NO_KERNELS
from ctk.toolkit.case.case import Case
from ctk.toolkit.case.failure import Signature
from ctk.toolkit.case.judgement import Judgement, Verdict
from ctk.toolkit.compile_log.recorder import Veto
from ctk.toolkit.oracle.executors.base import Executor
from ctk.toolkit.oracle.same_failure import SameFailure
from tests.helpers.case_folders import linear_case

WRONG = Signature("accuracy", output="out0")
PASS = Veto(passes=frozenset({"joint/fold"}))


class Fake(Executor):
    """Fails, whatever is left out, but for one pass; keeps what was asked."""

    isolates = False

    def __init__(self) -> None:
        self.asked: list[Veto | None] = []

    def ask(
        self,
        case: Case,
        expected: Signature | None = None,
        veto: Veto | None = None,
        *,
        is_candidate: bool = False,
    ) -> Judgement:
        self.asked.append(veto)
        return Judgement(Verdict.PASSES if veto == PASS else Verdict.REPRODUCES, expected)

    def close(self) -> None:
        """Nothing was started."""


@pytest.mark.parametrize(
    ("signature", "cause", "base", "asked"),
    [
        (WRONG, None, None, [None]),
        (WRONG, None, NO_KERNELS, [NO_KERNELS]),
        (WRONG, PASS, None, [None, PASS]),
        (Signature("compile-error", "TypeError"), None, None, [Veto()]),
    ],
    ids=["plain", "without generated code", "held to a cause", "an exception is observed"],
)
def test_what_a_question_leaves_out(signature, cause, base, asked):
    fake = Fake()
    oracle = SameFailure(linear_case(signature=signature), fake, cause, base)
    assert oracle(linear_case()).verdict is Verdict.REPRODUCES
    assert fake.asked == asked
