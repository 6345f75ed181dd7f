"""Inductor's freezing: every step is a pass with a name, checked, and vetoed to prove a culprit."""

from collections.abc import Callable

import pytest
import torch
import torch._inductor.freezing
from torch import Tensor, nn

from ctk.toolkit.bisect.culprit_search import find_culprit
from ctk.toolkit.case.case import Case
from ctk.toolkit.compile_log.check import check_log
from ctk.toolkit.compile_log.recorder import Recorder, Veto
from ctk.toolkit.importers import load_cases
from ctk.toolkit.options import CaseOptions
from ctk.toolkit.oracle.questions.judge import judge
from tests.helpers.torch_bugs import FOLDED_ALPHA

FREEZING = CaseOptions(target="inductor", config={"freezing": True})


class Conv(nn.Module):
    """A convolution and what is done to its result with a parameter."""

    def __init__(self, then: Callable[[Tensor, Tensor], Tensor]) -> None:
        super().__init__()
        self.conv, self.extra = nn.Conv2d(2, 4, 3), nn.Parameter(torch.rand(4, 1, 1) + 0.5)
        self.then = then

    def forward(self, x: Tensor) -> Tensor:
        return self.then(self.conv(x), self.extra)


class Linear(nn.Module):
    """Two linear layers of one input, one with a buffer that is written to."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Linear(4, 4), nn.Linear(4, 4)
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x: Tensor) -> Tensor:
        self.get_buffer("calls").add_(1)
        return self.a(x) + self.b(x) * self.get_buffer("calls")


def frozen_case(model: nn.Module, *inputs: Tensor) -> Case:
    (case,) = load_cases(model.eval(), inputs, FREEZING)
    return case


def frozen_passes(recorder: Recorder) -> list[str]:
    return [str(record.id) for record in recorder.log.passes() if record.id.stage == "frozen"]


def test_each_step_of_freezing_is_a_pass_that_is_checked():
    case, recorder = frozen_case(Linear(), torch.randn(2, 4)), Recorder(keep_calls=True)
    assert judge(case, observer=recorder).verdict.value == "passes"
    found = frozen_passes(recorder)
    steps = "view_to_reshape replace_params_with_constants fx_graph_cse constant_fold"
    assert {f"frozen/{step}" for step in steps.split()} <= set(found)
    assert not [name for name in found if "unannounced" in name]
    assert {f.status for f in check_log(case, recorder.log)} == {"ok"}
    (record,) = (r for r in recorder.log.passes() if r.id.name == "replace_params_with_constants")
    assert len(record.rewrites) == 4, "the buffer that is written to is left"


def test_without_constants_nothing_is_folded():
    veto = Veto(passes=frozenset({"frozen/replace_params_with_constants"}))
    case, recorder = frozen_case(Linear(), torch.randn(2, 4)), Recorder(veto, keep_calls=True)
    assert judge(case, observer=recorder).verdict.value == "passes"
    (call,) = recorder.log.calls()
    assert len(call.inputs) == 6


def test_a_wrong_step_of_freezing_is_named_and_confirmed(monkeypatch: pytest.MonkeyPatch):
    def doubling(gm: torch.fx.GraphModule) -> None:
        for node in gm.graph.nodes:
            if node.target is torch.ops.aten.addmm.default:
                node.kwargs = {"alpha": 2}

    monkeypatch.setattr(torch._inductor.freezing, "view_to_reshape", doubling)
    search = find_culprit(frozen_case(nn.Linear(4, 4), torch.randn(2, 4)))
    assert search.culprit is not None
    assert search.culprit.where == "frozen/view_to_reshape"
    assert search.confirmed


@pytest.mark.slow
@FOLDED_ALPHA.is_needed
@pytest.mark.parametrize(
    "then",
    [lambda y, t: torch.add(y, t, alpha=3.0), lambda y, t: torch.sub(y, t, alpha=2)],
    ids=["add", "sub"],
)
def test_the_alpha_that_binary_folding_drops(then: Callable[[Tensor, Tensor], Tensor]):
    search = find_culprit(frozen_case(Conv(then), torch.randn(1, 2, 6, 6)))
    assert search.culprit is not None
    assert "frozen/binary_folding" in search.culprit.where
    assert search.confirmed
