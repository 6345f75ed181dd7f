"""Compile the model that main.c calls: a classifier of rows of eight numbers, for 1 to 64 rows.

python model.py model.ctk
"""

import sys

import torch
from torch import nn
from torch.export import Dim

import ctk


def classifier() -> nn.Module:
    torch.manual_seed(0)
    layers = nn.Linear(8, 16), nn.LayerNorm(16), nn.GELU(), nn.Linear(16, 3), nn.Softmax(1)
    return nn.Sequential(*layers).eval()


def main(path: str) -> None:
    rows = Dim("rows", min=1, max=64)
    example = (torch.randn(4, 8),)
    ctk.aot_compile(classifier(), example, dynamic_shapes=({0: rows},), path=path)


if __name__ == "__main__":
    main(sys.argv[1])
