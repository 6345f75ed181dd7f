"""Random graphs: what every pass of the pipeline keeps, with and without some of its rewrites."""

import itertools
import random
from dataclasses import dataclass

import hypothesis
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, fx

from compiler.graph_copy import copy_graph_module
from compiler.observe import Numerics, PassRecord
from compiler.passes import PASSES
from tests.pass_programs import Program, programs
from tests.passes import run_pass, text_of
from toolkit.clone import clone_inputs
from toolkit.log import Recorder, Veto
from toolkit.tolerance import tolerance_for

ATEN_PASSES = {
    step.name: (stage, step)
    for stage, steps in PASSES.items()
    if stage != "pre_grad"
    for step in steps
}
SETTINGS = settings(derandomize=True, deadline=None, max_examples=50)
each_pass = pytest.mark.parametrize("name", ATEN_PASSES)


@dataclass(frozen=True)
class Ran:
    """What one run left: its outputs, then its inputs."""

    outputs: tuple[Tensor, ...]
    inputs: tuple[Tensor, ...]

    @property
    def values(self) -> tuple[Tensor, ...]:
        return (*self.outputs, *self.inputs)

    def sharing(self) -> list[tuple[int, int]]:
        """Return which pairs of values share storage."""
        places = [value.untyped_storage().data_ptr() for value in self.values]
        pairs = itertools.combinations(range(len(places)), 2)
        return [(i, j) for i, j in pairs if places[i] == places[j]]


def ran(gm: fx.GraphModule, program: Program) -> Ran:
    inputs = clone_inputs(program.inputs())
    torch.manual_seed(program.seed)
    return Ran(tuple(gm(*inputs)), inputs)


def rewritten(
    gm: fx.GraphModule, name: str, veto: Veto | None = None
) -> tuple[fx.GraphModule, PassRecord]:
    """Run a pass over a copy of a graph."""
    stage, step = ATEN_PASSES[name]
    copied = copy_graph_module(gm)
    return copied, run_pass(copied, step, stage=stage, observer=Recorder(veto))


def assert_same(before: Ran, after: Ran, numerics: Numerics) -> None:
    """Check values, types, strides and who shares memory with whom."""
    assert after.sharing() == before.sharing()
    for old, new in zip(before.values, after.values, strict=True):
        assert (new.dtype, new.shape, new.stride()) == (old.dtype, old.shape, old.stride())
        if numerics == "exact":
            assert bits(new) == bits(old)
        else:
            row = tolerance_for(old.dtype, numerics)
            torch.testing.assert_close(new, old, rtol=row.rtol, atol=row.atol, equal_nan=True)


def bits(tensor: Tensor) -> list[str]:
    """Return the numbers so that zeros of both signs differ and NaNs are equal."""
    return [repr(number) for number in tensor.flatten().tolist()]


@each_pass
@given(program=programs())
@SETTINGS
def test_a_pass_keeps_values_strides_and_sharing(name: str, program: Program):
    gm = program.graph()
    after, _ = rewritten(gm, name)
    assert_same(ran(gm, program), ran(after, program), ATEN_PASSES[name][1].numerics)


@each_pass
@given(program=programs())
@SETTINGS
def test_a_second_run_of_a_pass_is_idle(name: str, program: Program):
    after, _ = rewritten(program.graph(), name)
    again, record = rewritten(after, name)
    assert [rewrite.id.rule for rewrite in record.rewrites] == []
    assert text_of(again) == text_of(after)


@each_pass
@given(program=programs(), choice=st.integers(0, 20))
@SETTINGS
def test_a_pass_without_some_of_its_rewrites(name: str, program: Program, choice: int):
    gm = program.graph()
    count = len(rewritten(gm, name)[1].rewrites)
    untouched, record = rewritten(gm, name, Veto(fuel=0))
    assert not record.changed
    assert text_of(untouched) == text_of(gm)
    if count:
        partly, _ = rewritten(gm, name, Veto(rewrites=frozenset({choice % count + 1})))
        assert_same(ran(gm, program), ran(partly, program), ATEN_PASSES[name][1].numerics)


@given(program=programs())
@settings(SETTINGS, max_examples=25)
def test_all_passes_in_order_on_symbolic_sizes(program: Program):
    gm = program.graph("symbolic")
    after = copy_graph_module(gm)
    for stage in ("joint", "forward"):
        for step in PASSES[stage]:
            run_pass(after, step, stage=stage)
    assert_same(ran(gm, program), ran(after, program), "reassociates")


@each_pass
def test_the_programs_make_each_pass_work(name: str):
    """The properties above say nothing of a pass that never fires: each makes two rewrites."""
    hypothesis.find(
        programs(),
        lambda program: len(rewritten(program.graph(), name)[1].rewrites) >= 2,
        settings=settings(SETTINGS, max_examples=300, phases=[hypothesis.Phase.generate]),
        random=random.Random(0),
    )
