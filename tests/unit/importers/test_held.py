"""Graphs for a target that freezes hold what the user's module holds, as Dynamo gives them."""

from pathlib import Path

import pytest
import torch
from torch import nn

from ctk.toolkit.case.case import Case
from ctk.toolkit.case.store import load_case, save_case
from ctk.toolkit.execution.execute import run_eager
from ctk.toolkit.importers import load_cases
from ctk.toolkit.options import CaseOptions
from ctk.toolkit.repro.run import write_repro

FREEZING = CaseOptions(target="inductor", config={"freezing": True})


class Net(nn.Module):
    """A weight that is used twice, a buffer that is written to, and one that is not."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(3, 3), nn.Linear(3, 3)
        self.second.weight = self.first.weight
        self.register_buffer("seen", torch.zeros(()))
        self.register_buffer("shift", torch.ones(3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.get_buffer("seen").add_(1)
        return self.second(self.first(x)) + self.get_buffer("shift")


def net_case(request: CaseOptions, *, training: bool = False) -> Case:
    (case,) = load_cases(Net().train(training), [torch.ones(2, 3)], request)
    return case


def held_names(case: Case) -> set[str]:
    return {case.roles[key].name for key in case.roles if key.startswith("self.")}


ALL = {"first.weight", "first.bias", "second.bias", "seen", "shift"}


def test_a_case_for_freezing_holds_what_its_module_holds():
    case = net_case(FREEZING)
    assert held_names(case) == ALL
    assert len(case.inputs) == 1


def test_with_gradients_nothing_is_frozen():
    assert held_names(net_case(FREEZING, training=True)) == set()


@pytest.mark.parametrize(
    "request_",
    [CaseOptions(target="inductor"), CaseOptions(target="ctk", config={"freezing": True})],
)
def test_other_targets_get_inputs(request_: CaseOptions):
    assert held_names(net_case(request_)) == set()


def test_a_case_of_another_target_is_made_what_it_would_have_been(tmp_path: Path):
    other = net_case(CaseOptions())
    folder = save_case(other, tmp_path / "case", inputs="full")
    (case,) = load_cases(folder, None, FREEZING)
    assert held_names(case) == ALL
    assert len(case.inputs) == 1
    torch.testing.assert_close(run_eager(case).values["out0"], run_eager(other).values["out0"])
    assert [type(each) for each in case.graph.parameters()] == [nn.Parameter] * 3
    assert load_case(save_case(case, tmp_path / "held")).roles == case.roles


def test_the_repro_lets_dynamo_freeze(tmp_path: Path):
    text = write_repro(net_case(FREEZING), tmp_path).read_text()
    assert "torch._inductor.config.freezing = True" in text
    assert "import torch._inductor.config" in text
    text = write_repro(net_case(FREEZING, training=True), tmp_path).read_text()
    assert "torch._inductor.config" not in text
