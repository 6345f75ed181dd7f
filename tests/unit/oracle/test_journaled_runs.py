"""Each run of a question has its own answer in the journal."""

from pathlib import Path

from ctk.toolkit.case.case import Case
from ctk.toolkit.case.failure import Signature
from ctk.toolkit.case.judgement import Judgement, Verdict
from ctk.toolkit.oracle.answers.fingerprint import Digests
from ctk.toolkit.oracle.answers.journal import Header, Journal, resume_journal, start_journal
from ctk.toolkit.oracle.answers.journaled import Journaled, Memo
from ctk.toolkit.oracle.question import DirectOracle, Question
from ctk.toolkit.oracle.repeated_runs import ask_until_failing
from tests.helpers.case_folders import linear_case

HEADER = Header("minify", "net.py", {}, "full", (), {})


def runs(journal: Journal, answers: list[Judgement], seconds: float | None = None) -> Journaled:
    """Return who asks for the answers, one after the other; they are gone then."""

    def ask(case: Case) -> Judgement:
        return answers.pop(0)

    return Journaled(DirectOracle(ask), Memo(journal, seconds), Digests(), "test")


PASSES, FAILS = Judgement(Verdict.PASSES), Judgement(Verdict.REPRODUCES)


def test_a_run_that_is_gone_on_with_asks_none_of_them_again(tmp_path: Path) -> None:
    case, answers = linear_case(), [PASSES, FAILS, PASSES]
    with start_journal(tmp_path, HEADER) as journal:
        ask = runs(journal, answers)
        assert [ask.ask(Question(case, run=run)) for run in (1, 2)] == [PASSES, FAILS]
    with resume_journal(tmp_path, HEADER) as journal:
        ask = runs(journal, answers)
        assert ask_until_failing(ask, Question(case), 4) == [PASSES, FAILS]
        assert answers == [PASSES]
        assert (ask.ask(Question(case, run=3)), answers) == (PASSES, [])


def test_a_run_that_a_limit_has_ended_says_nothing_about_another_limit(tmp_path: Path) -> None:
    case = linear_case()
    late = Judgement(Verdict.REPRODUCES, Signature("timeout"), seconds=1)
    with start_journal(tmp_path, HEADER) as journal:
        assert runs(journal, [late], seconds=1).ask(Question(case, run=1)) == late
        assert runs(journal, [], seconds=1).ask(Question(case, run=1)) == late
        assert runs(journal, [PASSES], seconds=2).ask(Question(case, run=1)) == PASSES
