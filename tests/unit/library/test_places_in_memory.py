"""Tensors that begin inside of a storage: each stage of the toolkit keeps the place."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor

import ctk
from ctk.compiler.fx.clone import clone_inputs
from ctk.compiler.fx.walk import input_names
from ctk.compiler.torch_compat.fake import fake_tensors as fake
from ctk.toolkit.case.case import Case
from ctk.toolkit.case.store import load_case, save_case
from ctk.toolkit.case.usercode.program import load_program
from ctk.toolkit.execution.dynamo_context import KEY, dynamo_context
from ctk.toolkit.execution.private_copy import private_copy
from ctk.toolkit.importers.program import capture_cases
from ctk.toolkit.oracle.answers.fingerprint import fingerprint
from ctk.toolkit.reduce.analysis import facts_of
from ctk.toolkit.reduce.eager_values import values_before
from ctk.toolkit.reduce.edits import DropUnused
from ctk.toolkit.reduce.form_edits import ConvertTensors
from tests.helpers.cli import BROKEN_PASS, write

PROGRAM = """
import torch

def f(x):
    return torch.sin(torch.cos(x) + 1).relu() * 2

def model():
    return f

def inputs():
    return (torch.randn(9, 14)[3:{columns}],)
"""

GUARD = """\
    values = [node.meta["val"] for node in gm.graph.find_nodes(op="placeholder")]
    tensors = [each for each in values if isinstance(each, torch.Tensor)]
    if all(type(each.storage_offset()) is int and not each.storage_offset() for each in tensors):
        return
"""
FAULT = BROKEN_PASS.replace("    for node in list", f"{GUARD}    for node in list")
"""A pass that is wrong only if an input begins elsewhere than its storage."""


@pytest.fixture
def captured(tmp_path: Path) -> Callable[..., Case]:
    def capture(columns: str = "") -> Case:
        path = write(tmp_path, "part.py", PROGRAM.replace("{columns}", columns))
        (case,) = capture_cases(load_program(str(path)), dynamic=True)
        return case

    return capture


def layout_in_context(case: Case) -> list[object]:
    """Return the strides and the offset of the tensor that a backend gets."""
    graph, inputs = private_copy(case.graph, case.inputs, lazy=False)
    with dynamo_context(case, graph, inputs, fake.Unbacked()):
        values = [node.meta[KEY] for node in graph.graph.find_nodes(op="placeholder")]
        (tensor,) = (each for each in values if isinstance(each, Tensor))
        sizes = {str(each) for each in values if isinstance(each, torch.SymInt)}
        layout = (*tensor.stride(), tensor.storage_offset())
        return ["an input" if str(each) in sizes else each for each in layout]


@pytest.mark.parametrize("dynamic", [False, True])
def test_a_fault_that_depends_on_the_place_is_named_and_its_repro_shows_it(
    tmp_path: Path, dynamic: bool
) -> None:
    program = write(tmp_path, "part.py", PROGRAM.replace("{columns}", "") + FAULT)
    found = ctk.diagnose(program, out=tmp_path / "found", dynamic=dynamic)
    culprit = found.search.culprit
    assert culprit is not None and (culprit.stage, culprit.name) == ("joint", "negate_relu")
    assert found.search.confirmed
    assert found.repro_run is not None and found.repro_run.outcome == "reproduced"
    text = (tmp_path / "found" / "minimal" / "repro.py").read_text()
    assert "strided(torch." in text


def test_symbolic_offsets_and_strides_are_those_of_inputs(
    captured: Callable[..., Case], tmp_path: Path
) -> None:
    assert layout_in_context(captured())[-2:] == [1, "an input"]
    case = captured(", ::2")
    assert layout_in_context(case)[-2:] == ["an input", "an input"]
    save_case(case, tmp_path / "case")
    loaded = load_case(tmp_path / "case")
    assert layout_in_context(loaded)[-2:] == ["an input", "an input"]
    assert fingerprint(loaded) == fingerprint(case)


def test_an_offset_that_no_input_has_is_a_number(captured: Callable[..., Case]) -> None:
    case = captured()
    facts = facts_of(case)
    size = input_names(case.graph)[case.inputs.index(42)]
    dropped = DropUnused((size,)).apply(case, facts)
    assert dropped is not None
    assert layout_in_context(dropped)[-1] == 42
    assert fingerprint(dropped) != fingerprint(case)


def test_another_dtype_keeps_the_place(captured: Callable[..., Case]) -> None:
    case = captured(", ::2")
    name = next(iter(case.dynamic))
    made = ConvertTensors((name,), torch.float64).apply(case, facts_of(case))
    assert made is not None
    (old,), (new,) = ([v for v in each.inputs if isinstance(v, Tensor)] for each in (case, made))
    assert new.dtype == torch.float64 and torch.equal(new, old.double())
    assert (new.stride(), new.storage_offset()) == (old.stride(), old.storage_offset())
    assert layout_in_context(made) == layout_in_context(case)


def test_a_cut_value_keeps_its_place() -> None:
    graph = torch.fx.symbolic_trace(lambda x: x[3:] + 1)
    case = Case(graph, (torch.randn(9, 6),), "eager")
    (value,) = values_before(case, {"getitem": "add"}).values()
    assert isinstance(value, Tensor) and value.storage_offset() == 18


def test_a_clone_has_the_memory_before_its_tensors() -> None:
    memory = torch.arange(30.0)
    (clone,) = clone_inputs([memory[12:24].view(2, 6)])
    assert isinstance(clone, Tensor)
    assert torch.equal(clone.as_strided((24,), (1,), 0), memory[:24])
