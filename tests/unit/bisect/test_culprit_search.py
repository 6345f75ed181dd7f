"""Bisection: the searches as plain functions, two culprits, crashes and hangs in a child."""

import dataclasses

import pytest

from ctk.toolkit.bisect import Culprit, find_culprit
from ctk.toolkit.bisect import culprit_search as find
from ctk.toolkit.case.case import Case
from ctk.toolkit.case.failure import Signature
from ctk.toolkit.case.judgement import Judgement, Verdict
from ctk.toolkit.case.usercode.program import load_program
from ctk.toolkit.compile_log.recorder import EVERY_KERNEL, Veto
from ctk.toolkit.importers.program import capture_cases
from ctk.toolkit.oracle.executors.child import ChildProcess
from ctk.toolkit.oracle.question import Question
from tests.helpers.per_node_codegen import per_node

PROGRAM = """
import os
import time
import torch

aten = torch.ops.aten


def swap(gm):
    for node in gm.graph.nodes:
        if node.target is aten.sin.default:
            node.target = aten.cos.default


def die(gm):
    if any(node.target is aten.tanh.default for node in gm.graph.nodes):
        os.kill(os.getpid(), 11)


def hang(gm):
    if any(node.target is aten.tanh.default for node in gm.graph.nodes):
        time.sleep(600)


def model():
    return lambda x: (x.sin() + 1).tanh() * (x * 2).sin().exp()


def inputs():
    return (torch.linspace(0.1, 2.0, 8),)


def config():
    return {"custom_passes": {"joint": [__file__ + ":PASS"]}}
"""


def case_with(name: str, folder) -> Case:
    path = folder / "program.py"
    path.write_text(PROGRAM.replace("PASS", name))
    (case,) = capture_cases(load_program(str(path)))
    return case


def test_two_wrong_rewrites_are_both_named(tmp_path):
    search = find_culprit(case_with("swap", tmp_path))
    assert search.confirmed
    assert search.culprit.where == "joint/swap"
    assert len(search.also) == 1
    assert search.also[0].rewrite > search.culprit.rewrite


@pytest.mark.slow
@pytest.mark.usefixtures("warm_children")
@pytest.mark.parametrize(
    ("name", "kind", "seconds"), [("die", "signal", None), ("hang", "timeout", 6)]
)
def test_a_pass_that_kills_or_stops_the_process_is_named(name, kind, seconds, tmp_path):
    case = case_with(name, tmp_path)
    with ChildProcess(seconds) as child:
        search = find_culprit(case, executor=child)
    assert search.judgement.verdict is Verdict.REPRODUCES
    assert search.judgement.signature.kind == kind
    assert search.culprit.where == f"joint/{name}"
    assert search.confirmed
    assert search.compiles == 2


def test_an_unconfirmed_suspect_is_said_to_be_found_by_what_named_it(tmp_path, monkeypatch):
    suspect = Culprit("joint", "somebody", Veto())
    monkeypatch.setattr(find, "from_errors", lambda log: iter([suspect]))
    monkeypatch.setattr(find, "STRATEGIES", ())
    monkeypatch.setattr(find, "from_check", lambda case, log: iter(()))
    search = find_culprit(case_with("swap", tmp_path))
    assert (search.culprit, search.confirmed, search.found_by) == (suspect, False, "error")


class Crashing:
    """Stands in for a child process that dies whenever one kernel is called; asks nothing."""

    isolates = True

    def __init__(self, guilty: str, without_rewrites: Signature | None = None) -> None:
        self.guilty, self.asked = guilty, 0
        self.without_rewrites = without_rewrites

    def ask(self, question: Question, *, known_only: bool = False) -> Judgement:
        expected, veto = question.expected, question.veto
        self.asked += 1
        if veto is not None and veto.kernels & {self.guilty, EVERY_KERNEL}:
            return Judgement(Verdict.PASSES)
        last = "lowered/per_node:forward.mul_2"  # noted when it was made; the other died later
        seen = Signature("signal", signal=11, where=last)
        if veto is not None and veto.fuel == 0 and self.without_rewrites is not None:
            seen = self.without_rewrites
        same = expected is None or expected.matches(seen)
        return Judgement(Verdict.REPRODUCES if same else Verdict.DIFFERENT, seen)


def per_node_case(tmp_path, monkeypatch) -> Case:
    case = case_with("swap", tmp_path)
    monkeypatch.setattr("ctk.compiler.codegen.select.CODEGENS", (per_node(),))
    return dataclasses.replace(case, config={"codegen": "per_node", "fallback": ()})


def test_a_crash_that_turns_into_a_hang_is_not_run_in_this_process(tmp_path, monkeypatch):
    case = per_node_case(tmp_path, monkeypatch)

    def judge(case, observer=None):
        raise AssertionError("this would hang")

    monkeypatch.setattr("ctk.toolkit.bisect.crashes.judge", judge)
    search = find_culprit(case, executor=Crashing("none", Signature("timeout")))
    assert search.judgement.verdict is Verdict.REPRODUCES
    assert search.culprit is None
    assert "could not be named" in search.reason


@pytest.mark.parametrize("last", [None, "lowered/per_node:forward.another"])
def test_a_kernel_among_many_that_kills_when_called_is_found_by_halves(last, tmp_path, monkeypatch):
    """Without rewrites the nodes are others, and so is the kernel that is made last."""
    case = per_node_case(tmp_path, monkeypatch)
    without_rewrites = Signature("signal", signal=11, where=last) if last else None
    child = Crashing("lowered/per_node:forward.tanh", without_rewrites)
    search = find_culprit(case, executor=child)
    assert (search.confirmed, search.found_by) == (True, "elimination")
    assert search.culprit.where == child.guilty
    assert search.culprit.nodes == ("tanh",)
    assert child.asked <= 9


def test_a_case_that_does_not_fail_has_no_culprit(tmp_path):
    case = case_with("hang", tmp_path)
    search = find_culprit(dataclasses.replace(case, config={}))
    assert search.judgement.verdict is Verdict.PASSES
    assert search.culprit is None
    assert search.compiles == 1
