"""Transforms, loops and autograd of the program's own, on top of each other."""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch._higher_order_ops.scan import scan
from torch._higher_order_ops.while_loop import while_loop
from torch.func import functional_call, grad, hessian, jvp, vjp, vmap
from torch.utils.checkpoint import checkpoint

from tests.helpers.healthy.base import Call, Healthy


class StraightThrough(torch.autograd.Function):
    """Rounds forward and passes gradients on, clipped where it had seen large values."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, limit: float) -> Tensor:
        ctx.save_for_backward(x)
        ctx.limit = limit
        return x.round()

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        (x,) = ctx.saved_tensors
        return grads[0] * (x.abs() < ctx.limit), None


def clipped_rounding() -> Call:
    layer = nn.Linear(5, 5)
    return lambda x: StraightThrough.apply(layer(x) * 3, 2.0), (torch.randn(4, 5),)


def gradients_per_row() -> Call:
    model = nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 1))
    weights = {name: value.detach() for name, value in model.named_parameters()}

    def loss(weights: dict[str, Tensor], x: Tensor) -> Tensor:
        return functional_call(model, weights, (x,)).square().sum()

    return lambda x: vmap(grad(loss), in_dims=(None, 0))(weights, x), (torch.randn(3, 4),)


def second_derivatives() -> Call:
    def energy(x: Tensor) -> Tensor:
        return (x.sin() * x.flip(0).exp()).sum()

    return lambda x: (hessian(energy)(x), vjp(energy, x)[1](x.new_ones(()))), (torch.randn(4),)


def matrix_jvp() -> Call:
    def run(x: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        return jvp(lambda y: torch.softmax(y @ y.mT, -1), (x,), (v,))

    return run, (torch.randn(3, 3), torch.randn(3, 3))


def rows_in_vmap() -> Call:
    def run(x: Tensor) -> Tensor:
        return vmap(lambda row: torch.where(row > 0, row, row.flip(0)).cumsum(0))(x)

    return run, (torch.randn(4, 6),)


def nested_conditions() -> Call:
    def run(x: Tensor) -> Tensor:
        def low(y: Tensor) -> Tensor:
            return torch.cond(y.max() > 1, lambda z: z / 2, lambda z: z - 1, (y,))

        return torch.cond(x.sum() > 0, low, lambda y: y * 3, (x,)) + 1

    return run, (torch.randn(4, 3),)


def loop_with_carry() -> Call:
    def run(x: Tensor) -> tuple[Tensor, ...]:
        def go_on(step: Tensor, y: Tensor) -> Tensor:
            return (step < 6) & (y.abs().max() < 50)

        def body(step: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
            return step + 1, y * 2 + 1

        return while_loop(go_on, body, (torch.zeros((), dtype=torch.int64, device=x.device), x))

    return run, (torch.randn(4),)


def scan_of_states() -> Call:
    weight = torch.randn(4, 4) * 0.3

    def run(first: Tensor, x: Tensor) -> Any:
        def step(state: Tensor, row: Tensor) -> tuple[Tensor, Tensor]:
            state = torch.tanh(state @ weight + row)
            return state, state * 2

        return scan(step, first, x)

    return run, (torch.randn(2, 4), torch.randn(5, 2, 4))


def checkpointed_blocks() -> Call:
    blocks = nn.ModuleList(nn.Sequential(nn.Linear(6, 6), nn.Dropout(0.2)) for _ in range(2))

    def run(x: Tensor) -> Tensor:
        for block in blocks:
            x = x + checkpoint(block, x, use_reentrant=False, preserve_rng_state=True)
        return x

    return run, (torch.randn(3, 6),)


def marked_batch() -> Call:
    x = torch.randn(5, 4)
    torch._dynamo.mark_dynamic(x, 0, min=2, max=64)
    layer = nn.Linear(4, 4)

    def run(x: Tensor) -> Tensor:
        return layer(x).reshape(-1, 2).mean(0) * x.shape[0]

    return run, (x,)


def writes_through_views() -> Call:
    def run(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        row = x[1]
        row.mul_(2)
        x.t()[0].add_(y)
        x.diagonal().zero_()
        return row, x.view(-1)[::2]

    return run, (torch.randn(4, 4), torch.randn(4))


def gradient_hooks() -> Call:
    layer = nn.Linear(4, 3)

    def run(x: Tensor) -> Tensor:
        hidden = layer(x)
        if hidden.requires_grad:
            hidden.register_hook(lambda g: g.clamp(-0.1, 0.1) * 2)
        return hidden.exp()

    return run, (torch.randn(5, 4),)


def detached_branch() -> Call:
    def run(x: Tensor) -> tuple[Tensor, Tensor]:
        with torch.no_grad():
            scale = x.std()
        with torch.enable_grad():
            y = x / scale
        return y.square(), y.detach()

    return run, (torch.randn(4, 3, requires_grad=True),)


class Rotary(nn.Module):
    """Causal attention with rotated queries and keys, which two heads share, and its entropy."""

    def __init__(self) -> None:
        super().__init__()
        self.query, self.out = nn.Linear(32, 32, bias=False), nn.Linear(32, 32)
        self.key, self.value = nn.Linear(32, 16, bias=False), nn.Linear(32, 16, bias=False)
        angles = torch.outer(torch.arange(17.0), 10000 ** -(torch.arange(4) / 4))
        self.register_buffer("turns", torch.polar(torch.ones_like(angles), angles))
        self.turns: Tensor

    def turned(self, x: Tensor) -> Tensor:
        pairs = torch.view_as_complex(x.float().reshape(*x.shape[:-1], -1, 2))
        return torch.view_as_real(pairs * self.turns[:, None]).flatten(-2).type_as(x)

    def forward(self, x: Tensor, ids: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        query = self.turned(self.query(x).view(2, 17, 4, 8)).transpose(1, 2)
        key = self.turned(self.key(x).view(2, 17, 2, 8)).transpose(1, 2).repeat_interleave(2, 1)
        value = self.value(x).view(2, 17, 2, 8).transpose(1, 2).repeat_interleave(2, 1)
        mask = torch.triu(torch.full((17, 17), -torch.inf, device=x.device), 1)
        weights = ((query @ key.mT) / 8**0.5 + mask).softmax(-1)
        joined = (weights.to(value.dtype) @ value).transpose(1, 2).reshape(2, 17, 32)
        out = self.out(joined)
        loss = F.cross_entropy(out.flatten(0, 1), ids.flatten(), label_smoothing=0.1)
        return loss, out, -(weights * weights.clamp_min(1e-9).log()).sum(-1).mean((0, 2))


def low_precision_training() -> Call:
    """Backward gets what compiled kernels save, which are not eager's roundings in bfloat16."""
    model = Rotary()

    def run(x: Tensor, ids: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        with torch.autocast(x.device.type, dtype=torch.bfloat16):
            return model(x, ids)

    return run, (torch.randn(2, 17, 32), torch.randint(0, 32, (2, 17)))


PROGRAMS = (
    Healthy("clipped_rounding", clipped_rounding, backward=True),
    Healthy("gradients_per_row", gradients_per_row),
    Healthy("second_derivatives", second_derivatives),
    Healthy("matrix_jvp", matrix_jvp),
    Healthy("rows_in_vmap", rows_in_vmap),
    Healthy("nested_conditions", nested_conditions),
    Healthy("loop_with_carry", loop_with_carry),
    Healthy("scan_of_states", scan_of_states, bugs=(("inductor", "cuda"), ("inductor", "cpu"))),
    Healthy("checkpointed_blocks", checkpointed_blocks, backward=True),
    Healthy("marked_batch", marked_batch),
    Healthy("writes_through_views", writes_through_views),
    Healthy("gradient_hooks", gradient_hooks, backward=True),
    Healthy("detached_branch", detached_branch, backward=True),
    Healthy("low_precision_training", low_precision_training, backward=True),
)
