"""Messages between processes come back as they were sent."""

import io

import pytest

from ctk.compiler.errors import CaseError, ChildError, ConfigError
from ctk.toolkit.case.failure import Signature
from ctk.toolkit.case.judgement import Judgement, Verdict
from ctk.toolkit.compile_log.recorder import Veto
from ctk.toolkit.oracle.executors.protocol import (
    Answer,
    ChildQuestion,
    Failure,
    error_of,
    failure_of,
    read_answer,
    read_question,
    write_line,
)

WANTED = Signature("signal", where="joint/cse", signal=11, message="killed")


def piped(message: ChildQuestion | Answer) -> io.BytesIO:
    pipe = io.BytesIO()
    write_line(pipe, message)
    pipe.seek(0)
    return pipe


@pytest.mark.parametrize(
    "question",
    [
        ChildQuestion("ctk", "/tmp/case"),
        ChildQuestion(
            "my.py:f",
            "/tmp/case",
            WANTED,
            timeout_seconds=2,
            is_eager=True,
            veto=Veto(frozenset({"joint/cse"}), frozenset({1, 2}), frozenset({"*"}), fuel=3),
        ),
    ],
)
def test_questions(question: ChildQuestion) -> None:
    assert read_question(piped(question)) == question


@pytest.mark.parametrize(
    "answer",
    [
        Judgement(Verdict.PASSES),
        Judgement(Verdict.REPRODUCES, WANTED, "detail"),
        Failure("ConfigError", "no such option"),
    ],
)
def test_answers(answer: Answer) -> None:
    assert read_answer(piped(answer)) == answer


def test_a_message_of_something_else_is_an_error() -> None:
    with pytest.raises(CaseError, match=r"answer: \$\.verdict: expected .*found 'maybe'"):
        read_answer(io.BytesIO(b'{"verdict": "maybe", "signature": null, "detail": ""}\n'))
    with pytest.raises(CaseError, match=r"question: \$: 'folder' is missing"):
        read_question(io.BytesIO(b'{"target": "ctk"}\n'))


def test_an_exception_of_ours_keeps_its_type() -> None:
    assert type(error_of(failure_of(ConfigError("x")))) is ConfigError
    assert type(error_of(failure_of(ValueError("x")))) is ChildError


def test_a_message_that_was_cut_off_is_none() -> None:
    assert read_answer(io.BytesIO(b'{"cut')) is None
    assert read_question(io.BytesIO(b'{"cut')) is None
