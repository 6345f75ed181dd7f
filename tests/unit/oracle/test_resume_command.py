"""The command that goes on with a question of the user's."""

import shlex
from pathlib import Path

import pytest

from ctk.toolkit.oracle.answers.journal import Header
from ctk.toolkit.oracle.answers.resume_command import command_about, resume_command
from ctk.toolkit.oracle.questions.choice import choice_of


def header(options: dict[str, object], subject: str | None = "net.py") -> Header:
    return Header("minify", subject, options, "full", (), {})


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (
            {"command": "sh -c 'exit 1' {case}", "match": "a b"},
            ["--command", "sh -c 'exit 1' {case}", "--match", "a b"],
        ),
        ({"oracle": "math:isnan"}, ["--oracle", "math:isnan"]),
        ({"slower_than": "1.5x"}, ["--slower-than", "1.5x"]),
        ({"memory_above": 2}, ["--memory-above", "2x"]),
        ({"same_failure": "strict"}, ["--same-failure", "strict"]),
    ],
)
def test_the_question_is_asked_again(options: dict[str, str], words: list[str]) -> None:
    told = choice_of(**options).told  # type: ignore[arg-type]  # by name
    command = shlex.split(resume_command(header(told), Path("small")))
    assert command == ["ctk", "minify", "net.py", *words, "--out", "small", "--resume"]


def test_a_function_without_a_name_goes_on_in_python() -> None:
    told = choice_of(oracle=lambda case: True).told
    assert resume_command(header(told), Path("small")).startswith("ctk.minify(")
    told = choice_of(command="true {case}").told
    assert resume_command(header(told, None), Path("small")).startswith("ctk.minify(")


def test_other_operations_get_no_such_question() -> None:
    told = choice_of(command="true {case}").told
    assert command_about("net.py", "diagnose", {"target": "ctk", **told}) == (
        "ctk diagnose net.py --target ctk"
    )
