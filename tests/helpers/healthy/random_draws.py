"""Random numbers, which are equal on both sides when both draw as eager does."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tests.helpers.healthy.base import Call, Healthy


def dropout_training() -> Call:
    return nn.Sequential(nn.Linear(6, 6), nn.Dropout(0.4), nn.ReLU()), (torch.randn(4, 6),)


def noise() -> Call:
    def run(x: Tensor) -> Tensor:
        return x + torch.randn_like(x) * torch.rand(x.shape[-1], device=x.device)

    return run, (torch.randn(3, 4),)


def permutation() -> Call:
    return lambda x: x[torch.randperm(x.shape[0], device=x.device)].cumsum(0), (torch.randn(7, 2),)


def bernoulli_mask() -> Call:
    return lambda x: x * torch.bernoulli(x.sigmoid()), (torch.randn(16),)


def sampled_tokens() -> Call:
    return lambda x: torch.multinomial(x.softmax(-1), 2), (torch.randn(3, 8),)


def attention_with_dropout() -> Call:
    def run(q: Tensor, k: Tensor) -> Tensor:
        return F.dropout((q @ k.mT).softmax(-1), 0.2) @ k

    return run, (torch.randn(2, 5, 4, requires_grad=True), torch.randn(2, 5, 4))


ISSUE_188223 = (("inductor", "cpu"), ("inductor", "cuda"))

PROGRAMS = (
    Healthy("dropout_training", dropout_training, backward=True),
    Healthy("noise", noise),
    Healthy("permutation", permutation, bugs=ISSUE_188223),
    Healthy("bernoulli_mask", bernoulli_mask),
    Healthy("sampled_tokens", sampled_tokens),
    Healthy("attention_with_dropout", attention_with_dropout, backward=True),
)
