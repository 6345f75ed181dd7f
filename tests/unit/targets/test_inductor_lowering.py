"""Below Inductor's passes: lowerings, fusions, kernels and options have names and vetoes."""

import pytest
import torch
from torch import Tensor
from torch.fx import symbolic_trace

from ctk.compiler.observe import RewriteRecord
from ctk.toolkit.compile_log.recorder import Recorder, Veto
from ctk.toolkit.targets.inductor.target import TARGET
from tests.helpers.inductor_programs import FORWARD, observe

X = torch.tensor([1.0, 0.5, 6.0, 1.0])
SQUARE = torch.arange(4.0).reshape(2, 2)
FLOOR, COPIES = "lowered/lower.aten.floor.default", "lowered/buffer_reuse"


def two_loops(x: Tensor) -> tuple[Tensor, Tensor]:
    """Two loop nests of one size, which Inductor fuses."""
    return (torch.floor(x) * 2.0, torch.exp(x) + 1.0)


def two_kernels(x: Tensor) -> tuple[Tensor]:
    """A library call between two kernels."""
    return (torch.relu(torch.mm(torch.floor(x), x) + 1.0),)


def run(function, inputs, veto: Veto | None = None) -> Recorder:
    with torch.no_grad():
        expected = function(*inputs)
        compiled, recorder = observe(function, inputs, veto)
        torch.testing.assert_close(tuple(compiled(*inputs)), expected)
    return recorder


def lowered(recorder: Recorder) -> dict[str, bool]:
    return {str(p.id): p.vetoed for p in recorder.log.passes() if p.id.stage == "lowered"}


def fusions(recorder: Recorder) -> list[RewriteRecord]:
    return [r for p in recorder.log.passes() if p.id.name == "fusion" for r in p.rewrites]


def parts(recorder: Recorder) -> dict[str, tuple[str, ...]]:
    return {str(k.id): k.nodes for k in recorder.log.kernels() if k.nodes}


def test_each_operator_is_asked_about_once_and_falls_back_when_vetoed():
    asked = lowered(run(two_loops, (X,)))
    assert asked[FLOOR] is False
    assert {"lowered/lower.aten.mul.Tensor", "lowered/lower.aten.exp.default"} <= asked.keys()
    without = run(two_loops, (X,), Veto(passes=frozenset({FLOOR})))
    assert lowered(without)[FLOOR] is True
    assert "floor" not in {name for nodes in parts(without).values() for name in nodes}
    source = next(k.source for k in without.log.kernels() if not k.nodes)
    assert source is not None
    assert "torch.ops.aten.floor.default" in source


def test_a_call_says_which_kernel_runs_and_when_its_graph_goes_on():
    """What a crash leaves is the last of these: a kernel, or what is between two of them."""
    told: list[str] = []
    recorder = Recorder(on_start=told.append)
    compiled = TARGET.compile(symbolic_trace(two_kernels), [SQUARE], config={}, observer=recorder)
    told.clear()
    with torch.no_grad():
        compiled(SQUARE)
    first, second = parts(recorder)
    assert told == [FORWARD, first, FORWARD, second, FORWARD]


def test_a_fusion_has_a_number_and_a_vetoed_one_leaves_two_kernels_or_loops():
    whole = run(two_loops, (X,))
    (made,) = fusions(whole)
    assert not made.vetoed
    assert {"floor", "exp"} <= set(made.nodes)
    for veto in (Veto(rewrites=frozenset({made.id.number})), Veto(fuel=made.id.number - 1)):
        (refused,) = fusions(run(two_loops, (X,), veto))
        assert (refused.id, refused.vetoed) == (made.id, True)


def test_kernels_tell_their_nodes_their_code_and_what_they_read_and_wrote():
    inputs = (torch.arange(16.0).reshape(4, 4) / 3,)
    recorder = run(two_kernels, inputs)
    first, second = parts(recorder)
    assert parts(recorder)[first] == ("floor",)
    (call,) = recorder.log.calls()
    by_id = {str(kernel.id): kernel for kernel in call.kernels}
    torch.testing.assert_close(by_id[first].values["floor"], torch.floor(inputs[0]))
    (read,) = by_id[second].read.values()
    torch.testing.assert_close(read, torch.mm(torch.floor(inputs[0]), inputs[0]))
    record = next(k for k in recorder.log.kernels() if str(k.id) == first)
    assert record.source is not None
    assert record.stores["floor"] in record.source
    assert record.suffix == ".cpp"


def test_a_vetoed_kernel_runs_as_aten_and_the_others_stay():
    inputs = (torch.arange(16.0).reshape(4, 4) / 3,)
    first, second = parts(run(two_kernels, inputs))
    without = run(two_kernels, inputs, Veto(kernels=frozenset({first})))
    vetoed = {str(k.id): k.vetoed for k in without.log.kernels()}
    assert vetoed == {FORWARD: False, first: True, second: False}
    source = next(k.source for k in without.log.kernels() if not k.nodes)
    assert source is not None
    assert "torch.ops.aten.floor.default" in source
    assert "torch.ops.aten.relu.default" not in source


@pytest.mark.slow
def test_an_option_is_off_for_the_compile_that_vetoes_it_only():
    from torch._inductor import config

    veto = Veto(passes=frozenset({COPIES, "lowered/vectorization"}))
    recorder = run(two_loops, (X,), veto)
    assert lowered(recorder)[COPIES] is True
    assert config.allow_buffer_reuse
    source = next(k.source for k in recorder.log.kernels() if k.nodes)
    assert source is not None
    assert "at::vec" not in source
