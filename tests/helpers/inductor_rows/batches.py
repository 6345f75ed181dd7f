"""Rows of `group_batch_fusion.py`: operators of one shape as one operator of a stack."""

import torch
from torch import nn

from tests.helpers.inductor_rows import Program, row, shows

ON = {"batch_parallel.enabled": True}
POINTWISE = ("tanh", "sigmoid", "relu", "add", "sub", "mul", "div")


def asked(stage: str, name: str) -> dict[str, object]:
    """Return the options of Inductor for one fusion of at least two operators."""
    return {f"{stage}_fusion_options": {name: {"min_fuse_set_size": 2}}}


class Two(nn.Module):
    """Two layers side by side."""

    def __init__(self, make) -> None:
        super().__init__()
        self.first, self.second = make(), make()

    def forward(self, x, y):
        return self.first(x) @ self.second(y).t()


@shows(
    "group_batch_fusion.batch_layernorm",
    by="forward/batch_parallel",
    config=ON,
    their_config=asked("pre_grad", "batch_layernorm"),
    theirs_fires=False,
)
def layer_norms() -> Program:
    return Two(lambda: nn.LayerNorm(8)), [torch.randn(4, 8), torch.randn(4, 8)]


@shows(
    *(f"group_batch_fusion.batch_{name}" for name in ("tanh", "sigmoid", "relu", "nan_to_num")),
    "group_batch_fusion.batch_clamp",
    *(f"group_batch_fusion.batch_aten_{name}" for name in POINTWISE),
    by="forward/batch_parallel",
    config=ON,
    their_config=asked("post_grad", "batch_aten_tanh"),
    theirs_fires=False,
)
def pointwise_functions() -> Program:
    return lambda x, y: torch.tanh(x) @ torch.tanh(y).t(), [torch.randn(4, 8), torch.randn(4, 8)]


@shows(
    "group_batch_fusion.batch_linear",
    "group_batch_fusion.batch_linear_lhs",
    "group_batch_fusion.batch_linear_post_grad",
    by="pre_grad/batch_linears",
    config={"batch_linears.enabled": True},
    their_config=asked("pre_grad", "batch_linear"),
    theirs_fires=False,
)
def linears() -> Program:
    return Two(lambda: nn.Linear(8, 8)), [torch.randn(4, 8), torch.randn(4, 8)]


@shows("group_batch_fusion.batch_detach", by="joint/remove_noops", theirs_fires=False)
def detached() -> Program:
    return lambda x, y: (x * 2).detach().sin() + (y * 2).detach().cos(), [torch.randn(4)] * 2


row(
    "group_batch_fusion.batch_dropout",
    note="One mask for a stack has other numbers than a mask for each.",
)
row(
    "group_batch_fusion.group_linear",
    note="Needs `fbgemm`, which torch does not bring.",
)
row(
    "group_batch_fusion.cat_linear",
    by="pre_grad/batch_linears",
    since="2.15",
)
