"""Below the passes of Inductor: what makes a kernel deadly, asked in (a stand-in for) children."""

import pytest
import torch
from torch._inductor.codegen import cpp

from ctk.toolkit.bisect import find_culprit
from ctk.toolkit.case.case import Case
from ctk.toolkit.case.failure import Signature
from ctk.toolkit.case.judgement import Judgement, Verdict
from ctk.toolkit.case.usercode.program import load_program
from ctk.toolkit.compile_log.recorder import EVERY_KERNEL, Veto
from ctk.toolkit.importers.program import capture_cases
from ctk.toolkit.oracle.executors.base import Executor
from ctk.toolkit.oracle.executors.child import ChildProcess
from ctk.toolkit.oracle.question import Question

PROGRAM = """
import torch


def model():
    return lambda x: torch.floor(x).abs().neg().sum()


def inputs():
    return (torch.linspace(-2.0, 2.0, 8),)
"""


class Deadly(Executor):
    """A child that dies in a kernel, unless one of `guilty` (or the kernel) is left out."""

    isolates = True

    def __init__(self, *guilty: str) -> None:
        self.guilty, self.asked = {*guilty, EVERY_KERNEL}, 0

    def judge(self, question: Question) -> Judgement:
        self.asked += 1
        veto = question.veto or Veto()
        if veto.kernels or veto.passes & self.guilty:
            return Judgement(Verdict.PASSES)
        seen = Signature("signal", signal=8, where=KERNEL)
        return Judgement(Verdict.REPRODUCES, seen)

    def close(self) -> None:
        """Nothing was started."""


KERNEL = "lowered/inductor:forward.cpp_fused_abs_floor_neg_sum_0"


@pytest.fixture
def case(tmp_path) -> Case:
    torch._dynamo.reset()
    path = tmp_path / "program.py"
    path.write_text(PROGRAM)
    (found,) = capture_cases(load_program(str(path)), target="inductor")
    return found


def test_a_lowering_that_makes_a_kernel_kill_is_named(case: Case) -> None:
    child = Deadly("lowered/lower.aten.abs.default")
    search = find_culprit(case, executor=child)
    assert search.culprit is not None
    assert search.culprit.where == "lowered/lower.aten.abs.default"
    assert search.culprit.nodes == ("abs_1",)
    assert "std::abs" in search.culprit.excerpt or "abs()" in search.culprit.excerpt
    assert search.confirmed
    assert search.compiles == child.asked + 1


def test_a_kernel_that_kills_whatever_falls_back_is_named_itself(case: Case) -> None:
    search = find_culprit(case, executor=Deadly())
    assert search.culprit is not None
    assert search.culprit.where == KERNEL
    assert set(search.culprit.nodes) == {"floor", "abs_1", "neg", "sum_1"}
    assert search.confirmed


KILLS = """
from torch._inductor.codegen.cpp import CppOverrides, CppVecOverrides


def kill(x):
    return f"(__builtin_trap(), {x})"


def nothing(graph):
    pass


CppOverrides.abs = CppVecOverrides.abs = staticmethod(kill)
"""


@pytest.mark.slow
@pytest.mark.usefixtures("warm_children")
def test_a_kernel_that_really_kills_when_called_is_named(tmp_path, monkeypatch) -> None:
    """The first of two kernels, with a library call between them; its code is a trap."""
    for overrides in (cpp.CppOverrides, cpp.CppVecOverrides):
        monkeypatch.setattr(overrides, "abs", staticmethod(overrides.abs))
    patch = tmp_path / "kills.py"
    patch.write_text(KILLS)
    program = tmp_path / "program.py"
    body = "lambda x: torch.relu(torch.mm((x.floor() + 1).neg().abs() * 2, x) + 1)"
    program.write_text(
        PROGRAM.replace("lambda x: torch.floor(x).abs().neg().sum()", body).replace(
            "torch.linspace(-2.0, 2.0, 8)", "torch.randn(8, 8)"
        )
    )
    config = {"post_grad_custom_post_pass": f"{patch}:nothing"}
    (found,) = capture_cases(load_program(str(program)), target="inductor", config=config)
    with ChildProcess() as child:
        search = find_culprit(found, executor=child)
    assert search.judgement.signature is not None
    assert (search.judgement.signature.kind, search.judgement.signature.signal) == ("signal", 4)
    assert search.culprit is not None
    assert search.culprit.where == "lowered/lower.aten.abs.default"
    assert "__builtin_trap()" in search.culprit.excerpt
    assert search.confirmed
