"""Programs that keep something: modules with buffers, lists, counters, caches and optimizers."""

import dataclasses
from collections import namedtuple
from typing import Any

import torch
from torch import Tensor, nn

from tests.helpers.healthy.base import Call, Healthy

Split = namedtuple("Split", ["low", "high", "count"])


@dataclasses.dataclass
class Scored:
    """A result with names."""

    score: Tensor
    mask: Tensor
    steps: int


class RunningMean(nn.Module):
    """Counts its calls in Python and in a buffer, and keeps what it has seen in a list."""

    mean: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(8))
        self.calls = 0
        self.seen: list[tuple[int, ...]] = []

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        self.seen.append(tuple(x.shape))
        self.mean.mul_(0.9).add_(x.mean(0), alpha=0.1)
        return (x - self.mean) / self.calls


class KeyCache(nn.Module):
    """Grows a cache of keys by each call, as a decoder does."""

    def __init__(self) -> None:
        super().__init__()
        self.key = nn.Linear(8, 8)
        self.cache: Tensor | None = None

    def forward(self, x: Tensor) -> Tensor:
        keys = self.key(x)
        self.cache = keys if self.cache is None else torch.cat([self.cache, keys], dim=1)
        return torch.softmax(x @ self.cache.transpose(1, 2) / 8**0.5, -1) @ self.cache


class SlotCache(nn.Module):
    """Writes each call's row into a fixed buffer at a position that it counts itself."""

    slots: Tensor
    at: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("slots", torch.zeros(16, 4))
        self.register_buffer("at", torch.zeros((), dtype=torch.int64))

    def forward(self, x: Tensor) -> Tensor:
        self.slots.index_copy_(0, self.at.reshape(1) + torch.arange(3, device=x.device), x[:3])
        self.at += 3
        return self.slots.cumsum(0)


class Hooked(nn.Module):
    """Has forward hooks that write down and change what they see."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(6, 6)
        self.norms: list[Tensor] = []
        self.inner.register_forward_pre_hook(lambda _, args: (args[0] * 2,))
        self.inner.register_forward_hook(self.keep)

    def keep(self, module: nn.Module, args: Any, result: Tensor) -> Tensor:
        self.norms.append(result.detach().norm())
        return result.tanh()

    def forward(self, x: Tensor) -> Tensor:
        return self.inner(x) + x


def running_mean() -> Call:
    return RunningMean(), (torch.randn(5, 8),)


def growing_cache() -> Call:
    return KeyCache().eval(), (torch.randn(2, 1, 8),)


def slot_cache() -> Call:
    return SlotCache(), (torch.randn(3, 4),)


def hooks() -> Call:
    return Hooked(), (torch.randn(4, 6),)


def lstm_training() -> Call:
    forward, backward = nn.LSTMCell(5, 7), nn.LSTMCell(5, 7)  # Dynamo skips nn.LSTM

    def run(x: Tensor) -> Tensor:
        ends: list[Tensor] = []
        for cell, steps in ((forward, x), (backward, x.flip(1))):
            hidden = None
            for step in steps.unbind(1):
                hidden = cell(step, hidden)
            assert hidden is not None
            ends.append(hidden[0])
        return torch.cat(ends, 1)

    return run, (torch.randn(3, 6, 5),)


def gru_cell_loop() -> Call:
    cell = nn.GRUCell(4, 6)

    def run(x: Tensor) -> Tensor:
        state = x.new_zeros(x.shape[1], 6)
        states = []
        for step in x:
            state = cell(step, state)
            states.append(state)
        return torch.stack(states)

    return run, (torch.randn(5, 3, 4),)


def rnn_packed_mask() -> Call:
    cell = nn.RNNCell(4, 5, nonlinearity="relu")  # Dynamo skips nn.RNN

    def run(x: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        last, results = torch.zeros(x.shape[1], 5, device=x.device), list[Tensor]()
        for step in x:
            last = cell(step, last)
            results.append(last)
        result = torch.stack(results)
        keep = torch.arange(x.shape[0], device=x.device)[:, None] < lengths
        return result.masked_fill(~keep[..., None], float("-inf")).amax(0), last

    return run, (torch.randn(6, 3, 4), torch.tensor([6, 2, 4]))


def optimizer_step(kind: str, **options: Any) -> Call:
    model = nn.Sequential(nn.Linear(6, 8), nn.GELU(), nn.Linear(8, 2))
    optimizer = getattr(torch.optim, kind)(model.parameters(), **options)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1, gamma=0.5)

    def step(x: Tensor, y: Tensor) -> Tensor:
        optimizer.zero_grad(set_to_none=True)
        loss = nn.functional.mse_loss(model(x), y)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 0.5)
        optimizer.step()
        scheduler.step()
        return loss.detach()

    return step, (torch.randn(4, 6), torch.randn(4, 2))


def adamw_scheduled() -> Call:
    return optimizer_step("AdamW", lr=1e-2, foreach=True, weight_decay=0.1)


def adam_fused() -> Call:
    return optimizer_step("Adam", lr=1e-2, fused=True, amsgrad=True)


def sgd_nesterov() -> Call:
    return optimizer_step("SGD", lr=0.1, momentum=0.9, nesterov=True, foreach=False)


def rmsprop_centered() -> Call:
    return optimizer_step("RMSprop", lr=1e-2, centered=True, momentum=0.5)


def accumulated_gradients() -> Call:
    model = nn.Linear(5, 3)

    def step(x: Tensor) -> Tensor:
        loss = model(x).logsumexp(-1).mean() / 2
        loss.backward()
        total = torch.stack([p.grad.norm() for p in model.parameters() if p.grad is not None])
        return total.norm()

    return step, (torch.randn(4, 5),)


def conv_batch_norm() -> Call:
    model = nn.Sequential(
        nn.Conv2d(3, 6, 3, padding=1),
        nn.BatchNorm2d(6, momentum=0.3),
        nn.SiLU(),
        nn.Dropout2d(0.3),
    )
    return model, (torch.randn(4, 3, 6, 6),)


def spectral_and_weight_norm() -> Call:
    first = nn.utils.parametrizations.weight_norm(nn.Linear(5, 6))
    second = nn.utils.parametrizations.orthogonal(nn.Linear(6, 6))
    third = nn.utils.parametrizations.spectral_norm(nn.Linear(6, 4))
    return nn.Sequential(first, nn.Tanh(), second, nn.Tanh(), third), (torch.randn(3, 5),)


def named_tuple_result() -> Call:
    def run(x: Tensor, *, cut: float = 0.0, scale: Tensor | None = None) -> Split:
        x = x if scale is None else x * scale
        return Split(x.clamp_max(cut), x.clamp_min(cut), int(x.dim()))

    return lambda x, s: run(x, cut=0.25, scale=s), (torch.randn(4, 3), torch.rand(3))


def dataclass_result() -> Call:
    def run(x: Tensor) -> Scored:
        score = x.square().sum(-1).sqrt()
        return Scored(score, score > score.mean(), x.shape[0])

    return run, (torch.randn(4, 3),)


def list_and_dict_mutated() -> Call:
    def run(x: Tensor, kept: list[Tensor], table: dict[str, Any]) -> Tensor:
        kept.append(x + 1)
        kept[0] = kept[0] * 2
        table["last"] = x.sum()
        table["count"] = table.get("count", 0) + 1
        return kept[0] + len(kept)

    return run, (torch.randn(3), [torch.ones(3)], {"first": torch.zeros(2)})


def prints_and_warns() -> Call:
    def run(x: Tensor) -> Tensor:
        y = x.sin()
        print("mean", y.shape)
        z = y * 2
        torch._assert(z.shape[0] == x.shape[0], "lost rows")  # torch's public assertion
        return z.cos()

    return run, (torch.randn(4),)


def nested_compile() -> Call:
    inner = torch.compile(lambda x: x.relu() + 1, backend="eager")

    @torch.compiler.disable
    def outside(x: Tensor) -> Tensor:
        return x.flip(0)

    def run(x: Tensor) -> Tensor:
        return inner(outside(x * 2)).sum(0) - inner(x).mean()

    return run, (torch.randn(4, 3),)


def generator_of_its_own() -> Call:
    state = torch.Generator(device=torch.empty(0).device)

    def run(x: Tensor) -> Tensor:
        state.manual_seed(3)
        noise = torch.randn(x.shape, generator=state, device=x.device)
        return x + noise * 0.1

    return run, (torch.randn(4, 3),)


def python_generator() -> Call:
    def parts(x: Tensor):  # type: ignore[no-untyped-def]  # a generator, whose type helps nobody
        for row in x:
            yield row.exp() / row.exp().sum()

    def run(x: Tensor) -> Tensor:
        return torch.stack([part for part in parts(x) if part.numel() > 1])

    return run, (torch.randn(4, 3),)


PROGRAMS = (
    Healthy("running_mean", running_mean),
    Healthy("growing_cache", growing_cache),
    Healthy("slot_cache", slot_cache),
    Healthy("hooks", hooks),
    Healthy("lstm_training", lstm_training, backward=True),
    Healthy("gru_cell_loop", gru_cell_loop, backward=True),
    Healthy("rnn_packed_mask", rnn_packed_mask),
    Healthy("adamw_scheduled", adamw_scheduled),
    Healthy("adam_fused", adam_fused),
    Healthy("sgd_nesterov", sgd_nesterov),
    Healthy("rmsprop_centered", rmsprop_centered),
    Healthy("accumulated_gradients", accumulated_gradients),
    Healthy("conv_batch_norm", conv_batch_norm, backward=True),
    Healthy("spectral_and_weight_norm", spectral_and_weight_norm, backward=True),
    Healthy("named_tuple_result", named_tuple_result),
    Healthy("dataclass_result", dataclass_result),
    Healthy("list_and_dict_mutated", list_and_dict_mutated),
    Healthy("prints_and_warns", prints_and_warns),
    Healthy("nested_compile", nested_compile),
    Healthy("generator_of_its_own", generator_of_its_own),
    Healthy("python_generator", python_generator),
)
