"""Where the time of a compile went."""

import torch

from ctk.toolkit.operations.times import time_case
from tests.helpers.case_zoo import capture


def program(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    return (x.t().t() @ weight + 1).relu()


def test_steps_add_up_to_stages_and_stages_to_the_compile() -> None:
    (case,) = capture(program, torch.randn(3, 4), torch.randn(4, 4))
    times = time_case(case)
    steps = {f"{step.stage}/{step.name}": step for step in times.steps}
    assert times.target == "ctk" and times.error == ""
    assert steps["joint/simplify_views"].rewrites + steps["joint/remove_noops"].rewrites >= 1
    assert all(step.seconds > 0 for name, step in steps.items() if name.startswith("lowered/c:"))
    stages = ["captured", "pre_grad", "dispatch", "joint", "forward", "lowered"]
    assert [stage.stage for stage in times.stages] == stages
    phases = ("dispatch/trace", "lowered/print kernels", "lowered/C compiler")
    assert all(steps[phase].seconds > 0 for phase in phases)
    joint = next(stage for stage in times.stages if stage.stage == "joint")
    assert joint.rewrites == sum(s.rewrites for s in times.steps if s.stage == "joint")
    told = sum(stage.seconds for stage in times.stages)
    assert abs(told + times.rest - times.seconds) < 1e-9
