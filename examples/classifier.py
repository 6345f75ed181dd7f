"""A small classifier for batches of 1 to 64 rows: `ctk compile examples/classifier.py`."""

import torch
from torch import Tensor, nn


class Classifier(nn.Module):
    """Logits and the class of each row."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.LayerNorm(16), nn.Linear(16, 32), nn.GELU(), nn.Linear(32, 4)
        )

    def forward(self, rows: Tensor) -> dict[str, Tensor]:
        logits = self.layers(rows)
        return {"logits": logits, "classes": logits.argmax(-1)}


def model() -> nn.Module:
    return Classifier().eval()


def inputs() -> Tensor:
    return torch.randn(3, 16)


def dynamic_shapes() -> tuple[object, ...]:
    return ({0: torch.export.Dim("batch", min=1, max=64)},)
