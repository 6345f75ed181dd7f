"""Wrong decompositions: a step of dispatch, found by its values, confirmed without it."""

import dataclasses

import pytest
import torch

from ctk.toolkit.bisect import find_culprit
from ctk.toolkit.case.case import Case
from ctk.toolkit.case.judgement import Verdict
from ctk.toolkit.case.usercode.program import load_program
from ctk.toolkit.compile_log.check import check_log
from ctk.toolkit.compile_log.recorder import Recorder, Veto
from ctk.toolkit.importers.program import capture_cases
from ctk.toolkit.operations.check import check_case
from ctk.toolkit.oracle.questions.judge import judge

aten = torch.ops.aten

PROGRAM = """
import torch
import torch.nn.functional as F


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(6, 6)
        self.norm = torch.nn.LayerNorm(6)

    def forward(self, x):
        small = self.norm(F.gelu(self.linear(x)))
        large = F.interpolate(small, scale_factor=2, mode="nearest")
        smooth = F.interpolate(small, scale_factor=2, mode="bilinear")
        return (large.sin() + smooth).tanh() * 2, F.softplus(small).sum()


def model():
    torch.manual_seed(0)
    return Model()


def inputs():
    torch.manual_seed(1)
    return (torch.randn(1, 2, 6, 6),)
"""


def case_for(target: str, folder, *, backward: bool = False) -> Case:
    path = folder / "program.py"
    path.write_text(PROGRAM)
    (case,) = capture_cases(load_program(str(path)), backward=backward)
    return dataclasses.replace(case, target=target)


def doubled(function):
    def wrong(*args, **kwargs):
        return function(*args, **kwargs) * 1.5

    return wrong


def plant_in_dispatcher(monkeypatch, operator) -> None:
    """Make the decomposition that the Python dispatcher calls under autograd wrong."""
    for key, kernel in list(operator.py_kernels.items()):
        monkeypatch.setitem(operator.py_kernels, key, doubled(kernel))
    operator._dispatch_cache.clear()


def plant_in_table(monkeypatch, operator) -> None:
    table = torch._decomp.decomposition_table
    monkeypatch.setitem(table, operator, doubled(table[operator]))


@pytest.fixture(autouse=True)
def clean_dispatcher():
    yield
    for operator in (aten.upsample_nearest2d.vec, aten.upsample_bilinear2d.vec):
        operator._dispatch_cache.clear()


@pytest.mark.parametrize("backward", [False, True], ids=["forward", "backward"])
@pytest.mark.parametrize(
    "target", ["ctk", "aot_eager", pytest.param("torchscript", marks=pytest.mark.slow)]
)
@pytest.mark.parametrize("name", ["upsample_nearest2d", "upsample_bilinear2d"])
def test_a_wrong_decomposition_is_named_and_confirmed(
    name, target, backward, tmp_path, monkeypatch
):
    case = case_for(target, tmp_path, backward=backward)
    plant_in_dispatcher(monkeypatch, getattr(aten, name).vec)
    search = find_culprit(case)
    assert search.judgement.verdict is Verdict.REPRODUCES
    assert search.culprit.where == f"dispatch/decompose.aten.{name}.vec"
    assert search.confirmed
    assert search.culprit.captured == ({"n": "large", "b": "smooth"}[name[9]],)
    assert search.compiles == 2


TABLE_TARGET = "aot_eager_decomp_partition"  # the decompositions of Inductor, without Inductor


@pytest.mark.parametrize(
    "operator", [aten.gelu.default, aten.softplus.default, aten.gelu_backward.default], ids=str
)
def test_a_wrong_table_entry_is_named_and_confirmed(operator, tmp_path, monkeypatch):
    from torch._inductor.decomposition import select_decomp_table

    case = case_for(TABLE_TARGET, tmp_path, backward=True)
    table = select_decomp_table()
    monkeypatch.setitem(table, operator, doubled(table[operator]))
    search = find_culprit(case)
    assert search.culprit is not None
    assert search.culprit.where == f"dispatch/decompose.{operator}"
    assert (search.confirmed, search.compiles) == (True, 2)


@pytest.mark.slow
def test_a_wrong_table_entry_of_inductor_is_named_and_confirmed(tmp_path, monkeypatch):
    """With `fallback_random`, as here, Inductor uses another table than without."""
    from torch._inductor.decomposition import decompositions as table

    operator = aten.gelu_backward.default
    case = case_for("inductor", tmp_path, backward=True)
    monkeypatch.setitem(table, operator, doubled(table[operator]))
    search = find_culprit(case)
    assert search.culprit is not None
    assert search.culprit.where == f"dispatch/decompose.{operator}"
    assert (search.confirmed, search.compiles) == (True, 2)


def test_a_history_of_errors_has_the_steps_of_dispatch(tmp_path, monkeypatch):
    """A decomposition that is a little worse than the operator, within tolerance."""
    from torch._inductor.decomposition import select_decomp_table

    operator, table = aten.gelu.default, select_decomp_table()
    right = table[operator]
    monkeypatch.setitem(table, operator, lambda *args, **more: right(*args, **more) * (1 + 4e-6))
    found = check_case(case_for(TABLE_TARGET, tmp_path), history=True)
    assert found.judgement.verdict is Verdict.PASSES
    step = f"dispatch/decompose.{operator}"
    (change,) = [change for change in found.history if change.step == step]
    assert change.growth_ulp > 16
    assert change.after.rms > change.before.rms


@pytest.mark.parametrize("name", ["native_layer_norm.default", "var_mean.dim"])
def test_of_nested_decompositions_the_wrong_one_is_named(name, tmp_path, monkeypatch):
    """layer_norm is decomposed by var_mean: with a wrong var_mean both give wrong values."""
    from torch._inductor.decomposition import select_decomp_table

    packet, _, overload = name.partition(".")
    operator = getattr(getattr(aten, packet), overload)
    table = select_decomp_table()
    monkeypatch.setitem(table, operator, _wrong_first(table.get(operator) or operator.decompose))
    search = find_culprit(case_for(TABLE_TARGET, tmp_path))
    assert search.culprit.where == f"dispatch/decompose.aten.{name}"
    assert search.confirmed


def _wrong_first(function):
    def wrong(*args, **kwargs):
        first, *others = function(*args, **kwargs)
        return (first + 0.5, *others)

    return wrong


def test_right_decompositions_pass_the_check_and_may_be_left_out(tmp_path):
    case = case_for(TABLE_TARGET, tmp_path, backward=True)
    recorder = Recorder(keep_calls=True)
    assert judge(case, observer=recorder).verdict is Verdict.PASSES
    findings = list(check_log(case, recorder.log))
    steps = [finding.where for finding in findings]
    assert "dispatch/functionalize" in steps
    assert "dispatch/decompose.aten.gelu_backward.default" in steps
    assert {finding.status for finding in findings} == {"ok"}
    names = {str(p.id) for p in recorder.log.passes() if p.id.stage == "dispatch"}
    without = Recorder(Veto(passes=frozenset(names)))
    assert judge(case, observer=without).verdict is Verdict.PASSES
    joint = next(s.graph for s in without.log.stages() if s.stage == "joint")
    kept = {node.target for node in joint.graph.nodes}
    assert {aten.gelu.default, aten.upsample_nearest2d.default, aten.gelu_backward.default} <= kept


def test_a_decomposition_that_raises_is_named(tmp_path, monkeypatch):
    def raises(*args, **kwargs):
        raise ValueError("planted")

    from torch._inductor.decomposition import select_decomp_table

    case = case_for(TABLE_TARGET, tmp_path)
    monkeypatch.setitem(select_decomp_table(), aten.gelu.default, raises)
    search = find_culprit(case)
    assert search.judgement.signature.kind == "compile-error"
    assert search.culprit.where == "dispatch/decompose.aten.gelu.default"
    assert (search.confirmed, search.found_by) == (True, "error")


def test_nothing_of_torch_stays_wrapped(tmp_path):
    from torch._dynamo.backends import common
    from torch.fx.experimental import proxy_tensor

    def seen():
        operator = torch._ops.OpOverload
        return (
            common.aot_module_simplified, proxy_tensor.maybe_handle_decomp,
            operator.decompose, operator._get_dispatch,
        )  # fmt: skip

    before = seen()
    judge(case_for("aot_eager", tmp_path), observer=Recorder())
    assert seen() == before
