"""-x.abs() on uint8 widens: sum -800 instead of 224.

Source: pytorch/pytorch#187018. Culprit: lowering/cpp codegen: abs on uint8 (std::abs promotes to
int).
"""

import torch
import torch.nn as nn

CULPRIT = r"lowered/.*abs"


class M(nn.Module):
    def forward(self, x):
        y = -x.abs()
        return torch.cat([y, y]).sum()


def model():
    torch.manual_seed(0)
    return M().eval()


def inputs():
    torch.manual_seed(1)
    return (torch.tensor([200, 200], dtype=torch.uint8),)
