"""Faults planted into our own code generation: named to the kernel or the fusion, and reduced."""

import dataclasses

import pytest

from ctk.toolkit.bisect import find_culprit
from ctk.toolkit.oracle.questions.judge import judge
from ctk.toolkit.reduce.driver import minimize
from ctk.toolkit.reduce.problem import Problem
from tests.helpers.loop_faults import FAULTS, Fault

QUICK = ("a lowering raises",)


def marked(fault: Fault):
    return pytest.param(
        fault,
        id=fault.name.replace(" ", "-"),
        marks=() if fault.name in QUICK else pytest.mark.slow,
    )


@pytest.mark.parametrize("fault", [marked(fault) for fault in FAULTS])
def test_a_fault_is_named_confirmed_and_reduced(fault: Fault):
    if fault.config["codegen"] == "triton":
        pytest.importorskip("triton")
    case = fault.case()
    with fault.plant():
        search = find_culprit(case)
        assert search.culprit is not None
        assert search.culprit.where == f"lowered/{fault.culprit}"
        assert search.confirmed
        assert fault.node in search.culprit.nodes
        assert search.compiles <= 9
        signature = search.judgement.signature
        failing = dataclasses.replace(case, signature=signature)
        reduced = minimize(Problem(failing, lambda c: judge(c, expected=signature)))
        again = find_culprit(reduced.best)
    assert reduced.finished
    assert calls(reduced.best) <= fault.calls < calls(case)
    assert again.culprit is not None
    assert again.culprit.where.partition(":")[0] == search.culprit.where.partition(":")[0]
    assert find_culprit(case).culprit is None, "the patch is gone, and with it the failure"


def calls(case) -> int:
    return sum(node.op.startswith("call_") for node in case.graph.graph.nodes)
