"""Faults planted into Inductor, from decompositions down to options: named, confirmed."""

from pathlib import Path

import pytest
import torch

from ctk.toolkit.bisect import find_culprit
from ctk.toolkit.case.usercode.program import UserProgram
from ctk.toolkit.importers.program import capture_cases
from tests.helpers import inductor_pass_faults
from tests.helpers.inductor_faults import FAULTS, Fault

ALL = (*FAULTS, *inductor_pass_faults.FAULTS)


def marked(fault: Fault):
    return pytest.param(
        fault, id=fault.name.replace(" ", "-"), marks=() if fault.quick else pytest.mark.slow
    )


@pytest.mark.parametrize("fault", [marked(fault) for fault in ALL])
def test_a_fault_is_named_and_confirmed(fault: Fault):
    torch._dynamo.reset()
    backward = any(value.requires_grad for value in fault.inputs)
    program = UserProgram(fault.program, fault.inputs, {}, fault.program.__name__, Path(__file__))
    (case,) = capture_cases(program, target="inductor", backward=backward)
    with fault.plant():
        search = find_culprit(case)
    assert search.culprit is not None
    assert search.culprit.where == fault.where
    assert search.confirmed
    is_operator = search.culprit.stage == "operator"  # a fault of the captured graph
    nodes = search.culprit.captured if is_operator else search.culprit.nodes
    assert not fault.node or fault.node in nodes
    assert search.compiles <= 9
    assert find_culprit(case).culprit is None, "the patch is gone, and with it the failure"
