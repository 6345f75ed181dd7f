"""Int8 batched matmul returns int64.

Source: pytorch/pytorch#191308. Culprit: lowering: bmm of int8 with a size-1 dim (done as mul +
sum, sum promotes to int64).
"""

import torch
import torch.nn as nn

CULPRIT = r"lowered/.*(bmm|matmul|mm)"


class M(nn.Module):
    def forward(self, a, b):
        return torch.matmul(a, b)


def model():
    torch.manual_seed(0)
    return M().eval()


def inputs():
    torch.manual_seed(1)
    return torch.ones(1, 1, 2, dtype=torch.int8), torch.ones(1, 2, 2, dtype=torch.int8)
