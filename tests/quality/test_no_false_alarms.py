"""Healthy programs of hard kinds: `check` and `diagnose` see no failure in any of them."""

import subprocess
import sys
from collections.abc import Sequence
from typing import Any

import pytest

from benchmarks.false_alarms import ASKED, answer
from tests.helpers.healthy import HEALTHY, MORE
from tests.helpers.healthy.base import Healthy
from tests.helpers.project import ROOT

pytestmark = pytest.mark.filterwarnings("ignore")  # torch's own, of programs of hard kinds
ONCE_ALARMS = (
    "aliased_arguments", "autocast_regions", "checkpointed_blocks", "low_precision_training",
)  # fmt: skip
SOME = [
    *[each for each in HEALTHY if each not in MORE][::6],
    *[each for each in HEALTHY if each.name in ONCE_ALARMS],
]


def params(quick: Sequence[Healthy]) -> list[Any]:
    """Return each program as a parameter; all but the quick ones are slow."""
    return [
        pytest.param(
            each,
            id=each.name,
            marks=[
                pytest.mark.skipif(not each.is_available, reason=f"needs {each.package}"),
                *([] if each in quick else [pytest.mark.slow]),
            ],
        )
        for each in HEALTHY
    ]


def test_no_two_programs_have_the_same_name() -> None:
    names = [each.name for each in HEALTHY]
    assert len(set(names)) == len(names)


ALL = pytest.mark.parametrize("program", params(HEALTHY))
QUICK = pytest.mark.parametrize("program", params(SOME))
QUESTIONS = pytest.mark.parametrize("question", ASKED)


@QUICK
def test_check_with_ctk(program: Healthy) -> None:
    assert answer("check", program, "ctk", "cpu") is None


def test_a_decomposition_gives_an_inner_value_another_float_dtype() -> None:
    (program,) = (each for each in HEALTHY if each.name == "autocast_regions")
    assert answer("check", program, "inductor", "cpu") is None


@ALL
@pytest.mark.slow
def test_diagnose_with_ctk(program: Healthy) -> None:
    assert answer("diagnose", program, "ctk", "cpu") is None


@ALL
@QUESTIONS
@pytest.mark.slow
def test_inductor(program: Healthy, question: str) -> None:
    assert answer(question, program, "inductor", "cpu") is None


@ALL
@QUESTIONS
@pytest.mark.parametrize("target", ["ctk", "inductor"])
@pytest.mark.gpu
def test_on_cuda(program: Healthy, question: str, target: str) -> None:
    if (target, "cuda") in program.bugs:  # it may break CUDA for its process
        command = [sys.executable, "-m", "benchmarks.false_alarms", program.name]
        options = ["--target", target, "--only", question, "--device", "cuda"]
        done = subprocess.run(
            [*command, *options], capture_output=True, text=True, cwd=ROOT, check=False
        )
        assert "alarms: 0 of 1" in done.stdout.splitlines(), done
        return
    assert answer(question, program, target, "cuda") is None
