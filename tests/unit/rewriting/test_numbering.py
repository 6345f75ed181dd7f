"""Numbering: the n-th rewrite has the same number whatever is vetoed; names count their runs."""

import pytest

from ctk.compiler.options.config import Config
from ctk.compiler.rewriting.numbering import Numbering
from ctk.toolkit.compile_log.recorder import Recorder, Veto


def test_runs_of_a_pass_and_kernels_of_a_name_are_counted():
    numbering = Numbering()
    assert str(numbering.pass_id("joint", "fold")) == "joint/fold"
    assert str(numbering.pass_id("joint", "fold")) == "joint/fold#2"
    assert str(numbering.pass_id("forward", "fold")) == "forward/fold"
    assert str(numbering.kernel_id("c", "forward")) == "lowered/c:forward"
    assert str(numbering.kernel_id("c", "forward")) == "lowered/c:forward#2"
    assert str(numbering.kernel_id("eager", "forward")) == "lowered/eager:forward"


def test_a_rewrite_has_a_number_in_the_compile_and_one_in_its_pass():
    numbering = Numbering()
    first, second = numbering.pass_id("joint", "a"), numbering.pass_id("joint", "b")
    ids = [numbering.rewrite_id(each, "x -> y") for each in (first, first, second)]
    assert [(each.number, each.index) for each in ids] == [(1, 1), (2, 2), (3, 1)]
    assert numbering.used == 3


@pytest.mark.parametrize(
    "numbering",
    [
        Numbering(config=Config(fuel=2)),
        Numbering(Recorder(Veto(rewrites=frozenset({3})))),
        Numbering(Recorder(Veto(fuel=2))),
    ],
)
def test_fuel_and_vetoes_refuse_by_number_and_keep_the_number(numbering):
    pass_id = numbering.pass_id("joint", "a")
    ids = [numbering.rewrite_id(pass_id, "x -> y") for _ in range(3)]
    assert [numbering.allow_rewrite(each) for each in ids] == [True, True, False]
    assert numbering.rewrite_id(pass_id, "x -> y").number == 4


@pytest.mark.parametrize("name", ["fold", "joint/fold", "joint/fold#2"])
def test_a_pass_is_disabled_by_name_by_stage_and_by_run(name):
    numbering = Numbering(config=Config(disable=(name,)))
    numbering.pass_id("joint", "fold")
    assert not numbering.allow_pass(numbering.pass_id("joint", "fold"))
    assert numbering.allow_pass(numbering.pass_id("joint", "fuse"))


def test_an_observer_vetoes_passes_and_kernels_by_id():
    veto = Veto(passes=frozenset({"joint/fold"}), kernels=frozenset({"lowered/c:forward"}))
    numbering = Numbering(Recorder(veto))
    assert not numbering.allow_pass(numbering.pass_id("joint", "fold"))
    assert numbering.allow_pass(numbering.pass_id("joint", "fold"))
    assert not numbering.allow_kernel(numbering.kernel_id("c", "forward"))
    assert numbering.allow_kernel(numbering.kernel_id("c", "forward"))
