"""A program as the oracle: its exit code, its output, its limits; names that try to be commands."""

import re
import shlex
import sys
from pathlib import Path

import pytest

from ctk.compiler.errors import ProgramError
from ctk.toolkit.case.failure import Signature
from ctk.toolkit.case.judgement import Judgement, Verdict
from ctk.toolkit.case.store import load_case
from ctk.toolkit.oracle.question import Question
from ctk.toolkit.oracle.questions.choice import choice_of
from ctk.toolkit.oracle.questions.user_command import CommandOracle, fill_words
from tests.helpers.case_folders import linear_case

V = Verdict


def shell(script: str, **options: object) -> CommandOracle:
    return CommandOracle(("sh", "-c", script, "{case}"), **options)  # type: ignore[arg-type]  # by name


@pytest.mark.parametrize(
    ("script", "verdict"),
    [
        ("exit 0", V.PASSES),
        ("exit 125", V.INVALID),
        ("exit 1", V.REPRODUCES),
        ("kill -SEGV $$", V.REPRODUCES),
    ],
)
def test_exit_codes_are_read_as_git_bisect_run_reads_them(script: str, verdict: Verdict) -> None:
    assert shell(script).ask(Question(linear_case())).verdict is verdict


def test_what_was_seen_is_told_with_the_last_lines() -> None:
    judgement = shell("echo what is wrong; exit 3").ask(Question(linear_case()))
    assert judgement.signature == Signature("oracle", message="exit code 3")
    assert "what is wrong" in judgement.detail


@pytest.mark.parametrize(
    ("script", "verdict"),
    [
        ("echo slow kernel; exit 0", V.REPRODUCES),
        ("echo slow kernel >&2; exit 125", V.REPRODUCES),
        ("echo fine; exit 1", V.PASSES),
        ("exit 125", V.INVALID),
        (r"printf '\377\000 slow kernel \376'", V.REPRODUCES),
        (r"printf '\377\000'", V.PASSES),
    ],
)
def test_with_a_pattern_the_output_decides(script: str, verdict: Verdict) -> None:
    oracle = shell(script, match=re.compile("slow k.r"))
    assert oracle.ask(Question(linear_case())).verdict is verdict


def test_a_candidate_that_hangs_is_no_failure_but_a_given_case_that_hangs_is() -> None:
    hangs = "trap '' TERM; while :; do sleep 0.1; done"
    oracle = shell(hangs, limit_seconds=0.5)
    first = oracle.ask(Question(linear_case()))
    assert first.verdict is V.REPRODUCES
    oracle.remember(first)
    assert oracle.ask(Question(linear_case())).verdict is V.REPRODUCES
    oracle = shell(hangs, limit_seconds=0.5, given="exit code 1")
    assert oracle.ask(Question(linear_case())).verdict is V.TIMEOUT


@pytest.mark.parametrize("given", ["no end", "exit code 1"])
def test_what_a_limit_has_ended_says_so_and_which(given: str) -> None:
    judgement = shell("sleep 9", limit_seconds=60.0, given=given).ask(
        Question(linear_case(), deadline_seconds=0.3)
    )
    assert judgement.is_out_of_time and judgement.seconds == 0.3
    question = Question(linear_case(), deadline_seconds=9.0)
    done = shell("exit 1", given=given).ask(question)
    assert not done.is_out_of_time and done.seconds is not None and 0 < done.seconds < 9


@pytest.mark.parametrize(
    ("same", "code", "verdict"),
    [
        (None, 2, V.REPRODUCES),
        ("type", 2, V.REPRODUCES),
        ("strict", 2, V.DIFFERENT),
        ("strict", 1, V.REPRODUCES),
        ("any", 2, V.REPRODUCES),
    ],
)
def test_strictly_the_same_is_the_same_exit_code(same: str, code: int, verdict: Verdict) -> None:
    oracle = shell(f"exit {code}", same=same, given="exit code 1")
    assert oracle.ask(Question(linear_case())).verdict is verdict


def test_the_words_name_a_case_that_loads_and_a_script_that_runs(tmp_path: Path) -> None:
    keep = "import shutil, sys; shutil.copytree(sys.argv[1], sys.argv[3]); open(sys.argv[2]).read()"
    words = (sys.executable, "-c", keep, "{case}", "{repro}", str(tmp_path / "kept"))
    assert CommandOracle(words).ask(Question(linear_case())).verdict is V.PASSES
    assert load_case(tmp_path / "kept").name == linear_case().name
    assert "Standalone repro" in (tmp_path / "kept" / "repro.py").read_text()


def test_a_hostile_place_is_one_word_of_a_program_and_quoted_for_a_shell(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    place = tmp_path / 'it\'s $(touch owned); `touch owned` "x"'
    place.mkdir()
    names = {"{case}": str(place)}
    assert fill_words(("ls", "{case}"), names) == ["ls", str(place)]
    text = fill_words(("sh", "-c", "test -d {case} && exit 7"), names)[2]
    assert shlex.split(text)[2] == str(place)
    from ctk.toolkit.processes.commands import run_command_group

    assert run_command_group(["sh", "-c", text]).code == 7
    assert not (tmp_path / "owned").exists()


def test_a_hostile_name_of_a_case_reaches_no_shell(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from dataclasses import replace

    monkeypatch.chdir(tmp_path)
    case = replace(linear_case(), name="x; touch owned; $(touch owned)")
    oracle = CommandOracle(("sh", "-c", "test -f {case}/manifest.json && test -f {repro}"))
    assert oracle.ask(Question(case)).verdict is V.PASSES
    assert list(tmp_path.iterdir()) == []


def test_a_program_that_is_gone_is_said() -> None:
    with pytest.raises(ProgramError, match="cannot be started"):
        CommandOracle(("no-such-program-of-ctk", "{case}")).ask(Question(linear_case()))


def test_other_words_other_question() -> None:
    one, other = (choice_of(command=f"true {{case}} {x}") for x in "ab")
    identities = {CommandOracle(each.command).identity for each in (one, other)}
    assert len(identities) == 2


def test_the_answer_of_another_process_is_remembered_as_the_given_one() -> None:
    oracle = shell("exit 2", same="strict")
    oracle.remember(Judgement(V.REPRODUCES, Signature("oracle", message="exit code 1")))
    assert oracle.ask(Question(linear_case())).verdict is V.DIFFERENT
