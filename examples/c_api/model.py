"""The model that main.c calls: a classifier of rows of eight numbers, for 1 to 64 rows.

python model.py model.pt2
"""

import sys

import torch
from torch import nn
from torch.export import Dim


def classifier() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Linear(8, 16), nn.LayerNorm(16), nn.GELU(), nn.Linear(16, 3), nn.Softmax(1)
    )


def exported() -> torch.export.ExportedProgram:
    rows = Dim("rows", min=1, max=64)
    return torch.export.export(
        classifier().eval(), (torch.randn(4, 8),), dynamic_shapes=({0: rows},)
    )


if __name__ == "__main__":
    torch.export.save(exported(), sys.argv[1])
