"""Symbolic and data-dependent sizes."""

import torch
from torch import Tensor, nn

from tests.helpers.healthy.base import Call, Healthy


def any_batch() -> Call:
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2)).eval()
    return model, (torch.randn(5, 4),)


def sizes_in_arithmetic() -> Call:
    return lambda x: x.sum() / x.shape[0] + x.new_full((x.shape[1] * 2,), 0.5), (torch.randn(6, 3),)


def padded() -> Call:
    def run(x: Tensor) -> Tensor:
        missing = -x.shape[0] % 4
        return torch.nn.functional.pad(x, (0, 0, 0, missing)).view(-1, 4, x.shape[1]).sum(1)

    return run, (torch.randn(6, 3),)


def chosen_rows() -> Call:
    return lambda x: x[x.sum(-1) > 0].cumsum(0), (torch.randn(8, 3),)


def joined() -> Call:
    return lambda a, b: torch.cat([a, b]).flip(0)[: a.shape[0]], (
        torch.randn(3, 2),
        torch.randn(5, 2),
    )


def windows() -> Call:
    return lambda x: x.unfold(0, 3, 2).mean(-1), (torch.randn(9, 2),)


PROGRAMS = (
    Healthy("any_batch", any_batch, dynamic=True),
    Healthy("sizes_in_arithmetic", sizes_in_arithmetic, dynamic=True),
    Healthy("padded", padded, dynamic=True),
    Healthy("chosen_rows", chosen_rows),
    Healthy("joined", joined, dynamic=True),
    Healthy("windows", windows, dynamic=True),
)
