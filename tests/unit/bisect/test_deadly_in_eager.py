"""A program that hangs in eager as well: no compiler is to blame, and few questions show it."""

from ctk.toolkit.bisect import find_culprit
from ctk.toolkit.case.failure import Signature
from ctk.toolkit.case.judgement import Judgement, Verdict
from ctk.toolkit.oracle.executors.base import Executor
from ctk.toolkit.oracle.question import Question
from tests.helpers.case_folders import linear_case


class HangsInEagerToo(Executor):
    """Answers as a child does: out of time, then, when a hang is looked for, eager hangs too."""

    isolates = True

    def __init__(self) -> None:
        self.questions = 0

    def judge(self, question: Question) -> Judgement:
        self.questions += 1
        verdict = Verdict.TIMEOUT if question.expected is None else Verdict.INVALID
        return Judgement(verdict, Signature("timeout"), "eager alone does it too")

    def close(self) -> None:
        """Nothing was started."""


def test_a_program_that_hangs_in_eager_has_no_culprit():
    executor = HangsInEagerToo()
    found = find_culprit(linear_case(), executor=executor)
    assert found.judgement.verdict is Verdict.INVALID
    assert found.culprit is None
    assert executor.questions <= 3
