"""A submodule shadowed through the instance __dict__ is ignored on the second call.

Source: pytorch/pytorch#197859. Culprit: Dynamo guards: nn.Module __dict__ entry that shadows a
registered submodule is not guarded.
"""

import torch
import torch.nn as nn

CULPRIT = r"dynamo/guards"


class M(nn.Module):
    def __init__(self):
        super().__init__()
        self.sub = nn.Linear(4, 4)

    def forward(self, x):
        return self.sub(x).relu()


def warmups():
    return [inputs()]


def between(m):
    torch.manual_seed(2)
    object.__setattr__(m, "sub", nn.Linear(4, 4))


def model():
    torch.manual_seed(0)
    return M().eval()


def inputs():
    torch.manual_seed(1)
    return (torch.randn(3, 4),)
