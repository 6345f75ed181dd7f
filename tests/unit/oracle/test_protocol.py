"""Messages between processes come back as they were sent."""

import io

import pytest

from ctk.compiler.errors import CaseError, ConfigError, CtkError
from ctk.toolkit.case.failure import Signature
from ctk.toolkit.compile_log.recorder import Veto
from ctk.toolkit.oracle.judgement import Judgement, Verdict
from ctk.toolkit.oracle.protocol import (
    Answer,
    Failure,
    Question,
    answer_from_json,
    answer_to_json,
    error_of,
    failure_of,
    question_from_json,
    question_to_json,
    read_line,
    write_line,
)

WANTED = Signature("signal", where="joint/cse", signal=11, message="killed")


def through_a_pipe(data: dict[str, object]) -> dict[str, object]:
    pipe = io.BytesIO()
    write_line(pipe, data)
    pipe.seek(0)
    found = read_line(pipe)
    assert found is not None
    return found


@pytest.mark.parametrize(
    "question",
    [
        Question("ctk", "/tmp/case"),
        Question(
            "my.py:f",
            "/tmp/case",
            WANTED,
            allow_imports=("a", "b"),
            timeout_seconds=2,
            is_eager=True,
            veto=Veto(frozenset({"joint/cse"}), frozenset({1, 2}), frozenset({"*"}), fuel=3),
        ),
    ],
)
def test_questions(question: Question) -> None:
    assert question_from_json(through_a_pipe(question_to_json(question))) == question


@pytest.mark.parametrize(
    "answer",
    [
        Judgement(Verdict.PASSES),
        Judgement(Verdict.REPRODUCES, WANTED, "detail"),
        Failure("ConfigError", "no such option"),
    ],
)
def test_answers(answer: Answer) -> None:
    assert answer_from_json(through_a_pipe(answer_to_json(answer))) == answer


def test_a_message_of_something_else_is_an_error() -> None:
    with pytest.raises(CaseError, match=r"answer: \$\.verdict: expected .*found 'maybe'"):
        answer_from_json({"verdict": "maybe", "signature": None, "detail": ""})
    with pytest.raises(CaseError, match=r"question: \$: 'folder' is missing"):
        question_from_json({"target": "ctk"})


def test_an_exception_of_ours_keeps_its_type() -> None:
    assert type(error_of(failure_of(ConfigError("x")))) is ConfigError
    assert type(error_of(failure_of(ValueError("x")))) is CtkError
    assert read_line(io.BytesIO(b'{"cut')) is None
