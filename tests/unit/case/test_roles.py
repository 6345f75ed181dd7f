"""What tensors are in the user's program: read from Dynamo, saved, kept by reductions, shown."""

from collections.abc import Callable
from pathlib import Path

import torch
from torch import nn

from ctk.compiler.fx.rebuild import Change, NewInput
from ctk.toolkit.case.case import Case
from ctk.toolkit.case.roles import Role
from ctk.toolkit.case.store import load_case, save_case
from ctk.toolkit.cli.commands.show import show_case
from ctk.toolkit.importers.in_memory import program_of
from ctk.toolkit.importers.program import capture_cases
from ctk.toolkit.reduce.graph_changes import change_graph


class Net(nn.Module):
    """A parameter, a buffer, a plain attribute and a nested weight."""

    def __init__(self) -> None:
        super().__init__()
        self.scale, self.plain = nn.Parameter(torch.ones(3)), torch.ones(3)
        self.register_buffer("shift", torch.ones(3))
        self.layers = nn.ModuleList([nn.Linear(3, 3, bias=False)])

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return self.layers[0](x * self.scale) + self.get_buffer("shift") + self.plain + y


def only_case(function: Callable[..., object], *inputs: torch.Tensor) -> Case:
    (case,) = capture_cases(program_of(function, inputs))
    return case


def roles_by_name(case: Case) -> dict[str, tuple[str, str | None]]:
    return {role.name: (role.kind, role.static) for role in case.roles.values()}


def test_roles_have_the_names_of_the_module():
    y = torch.ones(3)
    torch._dynamo.mark_static_address(y)
    case = only_case(Net(), torch.ones(2, 3), y)
    assert roles_by_name(case) == {
        "scale": ("parameter", "unguarded"),
        "shift": ("buffer", "unguarded"),
        "plain": ("input", "unguarded"),
        "layers.0.weight": ("parameter", "unguarded"),
        "": ("input", "unguarded"),  # y
    }
    assert case.roles["l_y_"] == Role("input", "", "unguarded")
    assert "l_x_" not in case.roles


def test_names_tell_two_modules_apart():
    first, second = nn.Linear(3, 3, bias=False), nn.Linear(3, 3, bias=False)

    def both(x: torch.Tensor) -> torch.Tensor:
        return first(x) + second(x)

    assert set(roles_by_name(only_case(both, torch.ones(2, 3)))) == {
        "first.weight",
        "second.weight",
    }


def test_roles_are_saved_and_shown(tmp_path: Path):
    case = only_case(Net().eval(), torch.ones(2, 3), torch.ones(3))
    folder = save_case(case, tmp_path / "case")
    assert load_case(folder).roles == case.roles
    shown = show_case(folder)
    assert shown.data["roles"]["l_self_parameters_scale_"] == {  # type: ignore[index] # JSON
        "kind": "parameter",
        "name": "scale",
        "static": "unguarded",
    }


def test_a_parameter_of_a_graph_keeps_its_role(tmp_path: Path):
    with torch._inductor.config.patch(freezing=True), torch.no_grad():
        case = only_case(Net().eval(), torch.ones(2, 3), torch.ones(3))
    assert [key for key, role in case.roles.items() if role.kind == "buffer"] == [
        "self.L__self___shift"
    ]
    assert {role.static for role in case.roles.values()} == {"guarded"}
    assert load_case(save_case(case, tmp_path / "case")).roles == case.roles


def test_a_reduction_keeps_the_roles_of_what_remains():
    case = only_case(nn.Sequential(nn.Linear(3, 3), nn.ReLU(), nn.Linear(3, 3)), torch.ones(2, 3))
    assert len(case.roles) == 4
    (relu,) = (node.name for node in case.graph.graph.nodes if "relu" in str(node.target))
    smaller = change_graph(case, Change({relu: NewInput(relu)}), {relu: torch.ones(2, 3)})
    assert smaller is not None
    assert sorted(role.name for role in smaller.roles.values()) == ["2.bias", "2.weight"]


def test_a_parameter_of_a_graph_that_becomes_an_input_is_a_plain_one():
    with torch._inductor.config.patch(freezing=True), torch.no_grad():
        case = only_case(nn.Linear(3, 3).eval(), torch.ones(2, 3))
    (node,) = (n.name for n in case.graph.graph.nodes if str(n.target).endswith("weight"))
    smaller = change_graph(case, Change({node: NewInput(node)}), {node: torch.ones(3, 3)})
    assert smaller is not None
    assert [role.name for role in smaller.roles.values()] == ["bias"]
