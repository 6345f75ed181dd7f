"""Export a program with a varying batch size: `with_export.py net.pt2`, `ctk check net.pt2`."""

import sys

import torch
from torch import Tensor, nn


class Network(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 2))

    def forward(self, rows: Tensor) -> Tensor:
        return torch.softmax(self.layers(rows), dim=-1)


def main(path: str) -> None:
    torch.manual_seed(0)
    batch = torch.export.Dim("batch", min=2, max=64)
    exported = torch.export.export(
        Network().eval(), (torch.randn(4, 8),), dynamic_shapes=({0: batch},)
    )
    torch.export.save(exported, path)


if __name__ == "__main__":
    main(sys.argv[1])
