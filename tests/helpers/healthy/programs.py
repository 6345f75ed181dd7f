"""Whole programs: what they keep in Python, in caches and in optimizers between their calls."""

import collections
import contextlib
import dataclasses
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tests.helpers.healthy.base import Call, Healthy


class Counter(nn.Module):
    """Counts its calls, and logs the shapes that it saw in a list and in a dict of its class."""

    seen: dict[str, int] = {}  # noqa: RUF012  a mutable class attribute is what is tested

    def __init__(self) -> None:
        super().__init__()
        self.calls, self.log = 0, collections.deque[tuple[int, ...]](maxlen=3)
        self.register_buffer("total", torch.zeros(()))
        self.total: Tensor

    def forward(self, x: Tensor) -> dict[str, object]:
        self.calls += 1
        self.log.append(tuple(x.shape))
        Counter.seen["last"] = self.calls
        self.total += x.sum()
        return {"y": x * self.calls, "n": self.calls, "total": self.total.clone()}


def counters() -> Call:
    return Counter(), (torch.randn(3, 4),)


@dataclasses.dataclass
class Output:
    logits: Tensor
    hidden: tuple[Tensor, ...]
    loss: Tensor | None = None


class Pair(NamedTuple):
    first: Tensor
    second: object


def dataclass_outputs() -> Call:
    layers = nn.ModuleList([nn.Linear(4, 4) for _ in range(3)])

    def run(x: Tensor) -> Output:
        hidden: list[Tensor] = []
        for layer in layers:
            x = layer(x).relu()
            hidden.append(x)
        return Output(x, tuple(hidden))

    return run, (torch.randn(3, 4),)


def named_tuples() -> Call:
    return lambda x: Pair(x.sin(), Pair(x.cos(), [x, None, {"k": 3}])), (torch.randn(5),)


def generator_inside() -> Call:
    def parts(x: Tensor) -> Iterator[Tensor]:
        for index in range(3):
            yield x[index] * index

    return lambda x: torch.stack(list(parts(x))), (torch.randn(3, 4),)


def module_hooks() -> Call:
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 2))
    shapes: list[str] = []

    def double(module: Any, inputs: Any, output: Tensor) -> Tensor:
        shapes.append(type(module).__name__)
        return output * 2

    model[0].register_forward_hook(double)
    model[2].register_forward_pre_hook(lambda module, inputs: (inputs[0] + 1,))
    return model, (torch.randn(3, 4),)


def weight_hook() -> Call:
    model = nn.Linear(4, 2)
    model.weight.register_hook(lambda grad: grad * 0.5)
    return model, (torch.randn(3, 4, requires_grad=True),)


def adam_inside() -> Call:
    model = nn.Linear(4, 2)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)

    def step(x: Tensor, y: Tensor) -> Tensor:
        optimizer.zero_grad()
        loss = F.mse_loss(model(x), y)
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step, (torch.randn(3, 4), torch.randn(3, 2))


def scheduled_rate() -> Call:
    model = nn.Linear(4, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    schedule = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.5)

    def step(x: Tensor) -> float:
        optimizer.zero_grad(set_to_none=False)
        model(x).square().mean().backward()
        optimizer.step()
        schedule.step()
        return schedule.get_last_lr()[0]

    return step, (torch.randn(3, 4),)


def gradients_of_parameters() -> Call:
    model = nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 1))
    return model, (torch.randn(3, 4),)


def own_generator() -> Call:
    generator = torch.Generator()

    def run(x: Tensor) -> Tensor:
        generator.manual_seed(7)
        noise = torch.randn(x.shape, generator=generator)
        return (x + noise.to(x.device)).relu()

    return run, (torch.randn(3, 4),)


def printed_breaks() -> Call:
    lines: list[str] = []

    def run(x: Tensor) -> Tensor:
        x = x.sin() + 1
        torch._dynamo.graph_break()
        lines.append(f"{x.shape}")
        x = x * len(lines)
        torch._dynamo.graph_break()
        return x.cumsum(0)

    return run, (torch.randn(3, 4),)


class Cached(nn.Module):
    """Attention with a cache of keys and values, written in place, call after call."""

    def __init__(self) -> None:
        super().__init__()
        self.project = nn.Linear(8, 24)
        self.register_buffer("keys", torch.zeros(2, 16, 8))
        self.register_buffer("values", torch.zeros(2, 16, 8))
        self.keys: Tensor
        self.values: Tensor
        self.position = 0

    def forward(self, x: Tensor) -> Tensor:
        query, key, value = self.project(x).chunk(3, -1)
        end = self.position + x.shape[1]
        self.keys[:, self.position : end] = key
        self.values[:, self.position : end] = value
        self.position = end
        return F.scaled_dot_product_attention(query, self.keys[:, :end], self.values[:, :end])


def cached_attention() -> Call:
    return Cached().eval(), (torch.randn(2, 3, 8),)


def growing_list() -> Call:
    class Grows(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.past: list[Tensor] = []

        def forward(self, x: Tensor) -> Tensor:
            self.past.append(x * 2)
            return torch.cat(self.past).sum(0)

    return Grows(), (torch.randn(3, 4),)


def written_arguments() -> Call:
    def run(x: Tensor, table: dict[str, Tensor], rows: list[Tensor]) -> Tensor:
        x.mul_(2)
        table["a"].add_(x.sum())
        table["new"] = x[0].clone()
        rows.append(x.t())
        return x.view(-1)

    return run, (torch.randn(3, 4), {"a": torch.zeros(2)}, [torch.ones(1)])


def inference_mode() -> Call:
    model = nn.Linear(4, 2)

    def run(x: Tensor) -> Tensor:
        with torch.inference_mode():
            return model(x).softmax(-1)

    return run, (torch.randn(3, 4),)


def low_precision_region() -> Call:
    model = nn.Linear(8, 8)

    def run(x: Tensor) -> tuple[Tensor, Tensor]:
        with torch.autocast(x.device.type, dtype=torch.bfloat16):
            low = model(x)
        return low, model(x)

    return run, (torch.randn(4, 8),)


def timed() -> Call:
    class Timed(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            self.at = time.perf_counter_ns()
            self.spent = {"seconds": time.perf_counter(), "of": id(x)}
            return x.exp()

    return Timed(), (torch.randn(3, 4),)


def flags_switched() -> Call:
    class Switch(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm, self.is_first = nn.BatchNorm1d(4), True

        def forward(self, x: Tensor) -> Tensor:
            out = self.norm(x) if self.is_first else x - 1
            self.is_first = not self.is_first
            return out

    return Switch(), (torch.randn(3, 4),)


def caught_errors() -> Call:
    def run(x: Tensor, table: dict[str, float]) -> Tensor:
        try:
            scale = table["missing"]
        except KeyError:
            scale = 2.0
        with contextlib.suppress(ZeroDivisionError):
            scale += 1 / 0
        return x * scale

    return run, (torch.randn(3, 4), {"there": 1.0})


def tied_embedding() -> Call:
    class Tied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embed, self.head = nn.Embedding(10, 4), nn.Linear(4, 10, bias=False)
            self.head.weight = self.embed.weight

        def forward(self, ids: Tensor) -> Tensor:
            return self.head(self.embed(ids)).log_softmax(-1)

    return Tied(), (torch.randint(0, 10, (3, 5)),)


def shape_dependent() -> Call:
    def run(x: Tensor) -> tuple[Tensor, int, str]:
        rows = x.shape[0]
        return x.reshape(rows * 2, -1), rows, "odd" if rows % 2 else "even"

    return run, (torch.randn(3, 4),)


MAKERS: tuple[tuple[Callable[[], Call], bool], ...] = (
    (counters, False),
    (dataclass_outputs, True),
    (named_tuples, False),
    (generator_inside, False),
    (module_hooks, True),
    (weight_hook, True),
    (adam_inside, False),
    (scheduled_rate, False),
    (gradients_of_parameters, True),
    (own_generator, False),
    (printed_breaks, False),
    (cached_attention, False),
    (growing_list, False),
    (written_arguments, False),
    (inference_mode, False),
    (low_precision_region, False),
    (timed, False),
    (flags_switched, False),
    (caught_errors, False),
    (tied_embedding, True),
    (shape_dependent, False),
)
"""Each program, and whether gradients are wanted too."""

PROGRAMS = tuple(Healthy(make.__name__, make, backward=wanted) for make, wanted in MAKERS)
