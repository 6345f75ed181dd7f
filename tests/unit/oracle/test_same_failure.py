"""The oracle of a reduction: what its questions leave out, and what they hold a candidate to."""

import pytest

from ctk.toolkit.bisect.questions import NO_KERNELS
from ctk.toolkit.case.failure import Signature
from ctk.toolkit.case.judgement import Judgement, Verdict
from ctk.toolkit.compile_log.recorder import Veto
from ctk.toolkit.oracle.executors.base import Executor
from ctk.toolkit.oracle.question import Question
from ctk.toolkit.oracle.questions.same_failure import SameFailure, is_alike
from tests.helpers.case_folders import linear_case

WRONG = Signature("accuracy", output="out0")
PASS = Veto(passes=frozenset({"joint/fold"}))


class Fake(Executor):
    """Fails, whatever is left out, but for one pass; keeps what was asked."""

    isolates = False

    def __init__(self) -> None:
        self.asked: list[Veto | None] = []

    def judge(self, question: Question) -> Judgement:
        veto = question.veto
        self.asked.append(veto)
        return Judgement(Verdict.PASSES if veto == PASS else Verdict.REPRODUCES, question.expected)

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
    assert oracle.ask(Question(linear_case())).verdict is Verdict.REPRODUCES
    assert fake.asked == asked


RAISED = Signature("compile-error", "TypeError", "joint/fold", message="node mul_3 of [2, 3]")
SAME_WORDS = Signature("compile-error", "TypeError", "joint/fold", message="node mul of [7]")
OTHER_WORDS = Signature("compile-error", "TypeError", "joint/fold", message="no node")
OTHER_PLACE = Signature("compile-error", "TypeError", "joint/cse", message="node mul_3 of [2, 3]")
OTHER_TYPE = Signature("compile-error", "KeyError", "joint/fold", message="node mul_3 of [2, 3]")


@pytest.mark.parametrize(
    ("seen", "alike"),
    [
        (SAME_WORDS, {"strict", "type", "any"}),
        (OTHER_WORDS, {"type", "any"}),
        (OTHER_PLACE, {"type", "any"}),
        (OTHER_TYPE, {"any"}),
        (WRONG, {"any"}),
    ],
)
def test_what_is_alike_under_each_rule(seen, alike):
    assert {rule for rule in ("strict", "type", "any") if is_alike(RAISED, seen, rule)} == alike


class Seeing(Fake):
    """Sees one failure, whatever is asked."""

    def __init__(self, seen):
        super().__init__()
        self.seen, self.expected = seen, []

    def judge(self, question):
        expected = question.expected
        self.expected.append(expected)
        is_same = expected is None or expected.matches(self.seen)
        return Judgement(Verdict.REPRODUCES if is_same else Verdict.DIFFERENT, self.seen)


@pytest.mark.parametrize(
    ("rule", "seen", "verdict", "expected"),
    [
        (None, OTHER_WORDS, Verdict.REPRODUCES, RAISED),
        ("strict", OTHER_WORDS, Verdict.DIFFERENT, RAISED),
        ("strict", SAME_WORDS, Verdict.REPRODUCES, RAISED),
        ("type", OTHER_PLACE, Verdict.REPRODUCES, None),
        ("type", OTHER_TYPE, Verdict.DIFFERENT, None),
        ("any", WRONG, Verdict.REPRODUCES, None),
    ],
)
def test_a_rule_reads_the_answer(rule, seen, verdict, expected):
    executor = Seeing(seen)
    oracle = SameFailure(linear_case(signature=RAISED), executor, rule=rule)
    assert oracle.ask(Question(linear_case())).verdict is verdict
    assert executor.expected == [expected]


def test_any_failure_is_none_that_eager_may_have_too():
    hangs, dies = Signature("timeout"), Signature("signal", signal=11)
    oracle = SameFailure(linear_case(signature=hangs), Seeing(dies), rule="any")
    assert oracle.ask(Question(linear_case())).verdict is Verdict.DIFFERENT
