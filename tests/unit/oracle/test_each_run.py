"""Each run of a question has its own answer in the journal."""

from pathlib import Path

from ctk.toolkit.case.case import Case
from ctk.toolkit.case.failure import Signature
from ctk.toolkit.case.judgement import Judgement, Verdict
from ctk.toolkit.oracle.cache import Digests
from ctk.toolkit.oracle.each_run import EachRun
from ctk.toolkit.oracle.journal import Header, Journal, resume_journal, start_journal
from ctk.toolkit.oracle.memo import Memo
from tests.helpers.case_folders import linear_case

HEADER = Header("minify", "net.py", {}, "full", (), {})


def runs(journal: Journal, answers: list[Judgement], seconds: float | None = None) -> EachRun:
    """Return who asks for the answers, one after the other; they are gone then."""

    def ask(case: Case, within: float | None) -> Judgement:
        return answers.pop(0)

    return EachRun(ask, Memo(journal, seconds), Digests(), "test")


PASSES, FAILS = Judgement(Verdict.PASSES), Judgement(Verdict.REPRODUCES)


def test_a_run_that_is_gone_on_with_asks_none_of_them_again(tmp_path: Path) -> None:
    case, answers = linear_case(), [PASSES, FAILS, PASSES]
    with start_journal(tmp_path, HEADER) as journal:
        ask = runs(journal, answers)
        assert [ask(case, 1), ask(case, 2)] == [PASSES, FAILS]
    with resume_journal(tmp_path, HEADER) as journal:
        ask = runs(journal, answers)
        assert ask.until_failing(case, 4) == [PASSES, FAILS]
        assert answers == [PASSES]
        assert (ask(case, 3), answers) == (PASSES, [])


def test_a_run_that_a_limit_has_ended_says_nothing_about_another_limit(tmp_path: Path) -> None:
    case = linear_case()
    late = Judgement(Verdict.REPRODUCES, Signature("timeout"), seconds=1)
    with start_journal(tmp_path, HEADER) as journal:
        assert runs(journal, [late], seconds=1)(case, 1) == late
        assert runs(journal, [], seconds=1)(case, 1) == late
        assert runs(journal, [PASSES], seconds=2)(case, 1) == PASSES
