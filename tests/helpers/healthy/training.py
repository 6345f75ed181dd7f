"""Training: optimizers, hooks, gradients inside, own functions, accumulation, clipping."""

from collections.abc import Callable

import torch
from torch import Tensor, nn

from tests.helpers.case_zoo import Square
from tests.helpers.healthy.base import Call, Healthy


def optimizer(make: Callable[..., torch.optim.Optimizer]) -> Callable[[], Call]:
    def program() -> Call:
        model = nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 2))
        steps = make(model.parameters())
        for weight in model.parameters():
            weight.grad = torch.randn_like(weight)

        def run() -> list[Tensor]:
            steps.step()
            return [weight.detach().clone() for weight in model.parameters()]

        return run, ()

    return program


def batch_norm_training() -> Call:
    model = nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.ReLU(), nn.Linear(6, 2))
    return model, (torch.randn(8, 4),)


def own_gradient() -> Call:
    return lambda x: Square.apply(x).sum() * 2, (torch.randn(5, requires_grad=True),)


def straight_through() -> Call:
    return lambda x: x + (x.round() - x).detach(), (torch.randn(6, requires_grad=True),)


def tensor_hook() -> Call:
    def run(x: Tensor) -> Tensor:
        y = x.sin()
        y.register_hook(lambda g: g * 2)
        return y.square().sum()

    return run, (torch.randn(4, requires_grad=True),)


def module_hook() -> Call:
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU())
    model[0].register_forward_hook(lambda module, args, output: output * 0.5)
    return model, (torch.randn(3, 4),)


def clipping() -> Call:
    def run(*gradients: Tensor) -> list[Tensor]:
        norm = torch.stack([g.norm() for g in gradients]).norm()
        return [g * (1.0 / (norm + 1e-6)).clamp(max=1.0) for g in gradients]

    return run, (torch.randn(4, 4), torch.randn(7))


def tied_weights() -> Call:
    class Tied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embed, self.head = nn.Embedding(9, 4), nn.Linear(4, 9, bias=False)
            self.head.weight = self.embed.weight

        def forward(self, x: Tensor) -> Tensor:
            return self.head(self.embed(x).tanh()).logsumexp(-1).sum()

    return Tied(), (torch.randint(0, 9, (2, 5)),)


def frozen_half() -> Call:
    model = nn.Sequential(nn.Linear(4, 5), nn.ReLU(), nn.Linear(5, 3))
    model[0].requires_grad_(False)
    return model, (torch.randn(3, 4),)


PROGRAMS = (
    Healthy("sgd_momentum", optimizer(lambda w: torch.optim.SGD(w, lr=0.1, momentum=0.9))),
    Healthy("adam", optimizer(lambda w: torch.optim.Adam(w, lr=0.1))),
    Healthy("adamw_foreach", optimizer(lambda w: torch.optim.AdamW(w, lr=0.1, foreach=True))),
    Healthy("rmsprop", optimizer(lambda w: torch.optim.RMSprop(w, lr=0.1))),
    Healthy("batch_norm_training", batch_norm_training, backward=True),
    Healthy("own_gradient", own_gradient, backward=True),
    Healthy("straight_through", straight_through, backward=True),
    Healthy("tensor_hook", tensor_hook, backward=True),
    Healthy("module_hook", module_hook, backward=True),
    Healthy("clipping", clipping),
    Healthy("tied_weights", tied_weights, backward=True),
    Healthy("frozen_half", frozen_half, backward=True),
)
