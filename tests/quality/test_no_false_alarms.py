"""Healthy programs of hard kinds: `check` and `diagnose` see no failure in any of them."""

import pytest

from benchmarks.false_alarms import ASKED, answer
from tests.helpers.healthy import HEALTHY, MORE
from tests.helpers.healthy.base import Healthy

SOME = [each for each in HEALTHY if each not in MORE][::6]
ALL = pytest.mark.parametrize("program", HEALTHY, ids=[each.name for each in HEALTHY])
QUICK = pytest.mark.parametrize(
    "program",
    [
        pytest.param(each, id=each.name, marks=() if each in SOME else pytest.mark.slow)
        for each in HEALTHY
    ],
)
QUESTIONS = pytest.mark.parametrize("question", ASKED)


@QUICK
@pytest.mark.filterwarnings("ignore")  # torch's own, of programs of hard kinds
def test_check_with_ctk(program: Healthy) -> None:
    assert answer("check", program, "ctk", "cpu") is None


@ALL
@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_diagnose_with_ctk(program: Healthy) -> None:
    assert answer("diagnose", program, "ctk", "cpu") is None


@ALL
@QUESTIONS
@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_inductor(program: Healthy, question: str) -> None:
    assert answer(question, program, "inductor", "cpu") is None


@ALL
@QUESTIONS
@pytest.mark.parametrize("target", ["ctk", "inductor"])
@pytest.mark.gpu
@pytest.mark.filterwarnings("ignore")
def test_on_cuda(program: Healthy, question: str, target: str) -> None:
    assert answer(question, program, target, "cuda") is None
