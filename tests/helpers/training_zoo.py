"""Programs that change state when they are called twice: optimizers, buffers, views, generators.

Each entry builds a fresh program with fixed seeds. Two steps of it, watched or not, must leave the
same bits in all that the program can look at.
"""

import copy
import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ctk.repro_templates.graph.running import generator_states
from tests.helpers.case_zoo import Square, samples

Compile = Callable[..., Any]
"""`torch.compile` with the backend under test."""

Step = Callable[[], object]
"""One step of the program; returns what the program gets."""

State = Callable[[], object]
"""Returns all that the program can look at."""


@dataclass(frozen=True, slots=True)
class Program:
    """A kind of program.

    Attributes:
        name: Its kind.
        make: Builds it on a device, which is torch's default meanwhile: one step, and what reads
            its state.
        wrong_with: Backends that compile it wrongly, which is another story: watching reports it.
    """

    name: str
    make: Callable[[Compile, str], tuple[Step, State]]
    wrong_with: tuple[str, ...] = ()


def steps_of(program: Program, compile: Compile, device: str = "cpu", *, count: int = 2) -> object:
    """Run the first steps of a program from a fixed seed; return what they gave and left."""
    torch.compiler.reset()
    torch.manual_seed(7)
    with torch.device(device):
        step, state = program.make(compile, device)
    results = [copied(step()) for _ in range(count)]
    return {"results": results, "state": copied(state()), "generators": generator_states()}


def copied(value: object) -> object:
    """Return a value with clones of its tensors."""
    if isinstance(value, Tensor):
        return value.detach().clone()
    if isinstance(value, torch.Generator):
        return value.get_state()
    if isinstance(value, dict):
        return {key: copied(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [copied(item) for item in value]
    return copy.copy(value)


def differences(a: object, b: object, where: str = "") -> list[str]:
    """Return where two values differ in a bit, by path."""
    if isinstance(a, Tensor) and isinstance(b, Tensor):
        return [] if _same_bits(a, b) else [f"{where}: {a.flatten()[:3]} and {b.flatten()[:3]}"]
    if isinstance(a, dict) and isinstance(b, dict) and a.keys() == b.keys():
        return [each for key in a for each in differences(a[key], b[key], f"{where}.{key}")]
    if isinstance(a, (list, tuple)) and isinstance(b, (list, tuple)) and len(a) == len(b):
        pairs = enumerate(zip(a, b, strict=True))
        return [each for i, (x, y) in pairs for each in differences(x, y, f"{where}[{i}]")]
    return [] if type(a) is type(b) and a == b else [f"{where}: {a!r} and {b!r}"]


def _same_bits(a: Tensor, b: Tensor) -> bool:
    if (a.shape, a.dtype, a.layout) != (b.shape, b.dtype, b.layout):
        return False
    return torch.equal(
        a.contiguous().flatten().view(torch.uint8), b.contiguous().flatten().view(torch.uint8)
    )


# --- training ---


def small_net() -> nn.Sequential:
    return nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 2))


def model_state(model: nn.Module) -> object:
    gradients = {name: parameter.grad for name, parameter in model.named_parameters()}
    versions = {name: value._version for name, value in model.state_dict(keep_vars=True).items()}
    return {"values": model.state_dict(), "gradients": gradients, "versions": versions}


def optimizer_step(make: Callable[..., torch.optim.Optimizer]) -> Callable[..., Any]:
    """Compile `opt.step` alone; forward and backward in eager."""

    def program(compile: Compile, device: str) -> tuple[Step, State]:
        model = small_net()
        optimizer = make(model.parameters())
        stepped = compile(optimizer.step)

        def step() -> object:
            optimizer.zero_grad()
            loss = model(torch.randn(3, 4, device=device)).square().sum()
            loss.backward()
            stepped()
            return loss

        return step, lambda: [model_state(model), optimizer.state_dict()]

    return program


def whole_training(make_model: Callable[[], nn.Module]) -> Callable[..., Any]:
    """Compile the model; two backward passes are added up before the step."""

    def program(compile: Compile, device: str) -> tuple[Step, State]:
        model = make_model()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        compiled = compile(model)

        def step() -> object:
            optimizer.zero_grad()
            outputs: list[Tensor] = []
            for _ in range(2):
                outputs.append(compiled(torch.randn(6, 4, device=device)))
                outputs[-1].square().sum().backward()
            optimizer.step()
            return outputs

        return step, lambda: [model_state(model), optimizer.state_dict()]

    return program


class Tied(nn.Module):
    """One weight twice, and two buffers on one storage."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(4, 4), nn.Linear(4, 4)
        self.second.weight = self.first.weight
        self.register_buffer("count", torch.zeros(6))
        self.register_buffer("tail", self.count[3:])

    def forward(self, x: Tensor) -> Tensor:
        self.count.add_(1)
        self.tail.mul_(2)
        return self.second(self.first(x).relu()) * self.count.sum()


class Normed(nn.Sequential):
    def __init__(self) -> None:
        super().__init__(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Dropout(0.3), nn.Linear(4, 2))


class Recurrent(nn.Module):
    """Keeps its hidden state between calls, as a new tensor each time."""

    def __init__(self) -> None:
        super().__init__()
        self.cell = nn.GRUCell(4, 4)
        self.register_buffer("hidden", torch.zeros(6, 4))

    def forward(self, x: Tensor) -> Tensor:
        new = self.cell(x, self.hidden)
        self.hidden = new.detach()
        return new


class RecurrentInPlace(Recurrent):
    """Keeps its hidden state in one tensor. Inductor saves that for the backward, not the clone."""

    def forward(self, x: Tensor) -> Tensor:
        new = self.cell(x, self.hidden.clone())
        with torch.no_grad():
            self.hidden.copy_(new)
        return new


def average(compile: Compile, device: str) -> tuple[Step, State]:
    """An exponential moving average of weights, updated in place."""
    model, shadow = small_net(), small_net()

    @torch.no_grad()
    def update() -> None:
        for slow, fast in zip(shadow.parameters(), model.parameters(), strict=True):
            slow.lerp_(fast, 0.1)

    return compile(update), lambda: [model_state(model), model_state(shadow)]


# --- functions that write ---


def on(make: Callable[[], tuple[Callable[..., object], Sequence[Any]]]) -> Callable[..., Any]:
    """Compile a function and call it with the same objects each time."""

    def program(compile: Compile, device: str) -> tuple[Step, State]:
        function, values = make()
        compiled = compile(function)
        return lambda: compiled(*values), lambda: _all_of(values)

    return program


def _all_of(values: Sequence[Any]) -> object:
    versions = [value._version for value in values if isinstance(value, Tensor)]
    return [list(values), versions]


def writes_a_view() -> tuple[Callable[..., object], Sequence[Any]]:
    def function(x: Tensor, part: Tensor) -> Tensor:
        part.add_(1)
        x[0].mul_(3)
        return x.sin() + part.sum()

    base = torch.randn(4, 4)
    return function, (base, base[1:3])


def captures() -> tuple[Callable[..., object], Sequence[Any]]:
    table, places = torch.zeros(4), [torch.zeros(2), torch.ones(2)]

    def function(x: Tensor, *_seen: Tensor) -> Tensor:
        table.add_(x.sum())
        places[1].mul_(2)
        return x + table.sum() + places[1].sum()

    return function, (torch.randn(3), table, *places)


def generator_argument() -> tuple[Callable[..., object], Sequence[Any]]:
    def function(x: Tensor, generator: torch.Generator) -> Tensor:
        draw = functools.partial(torch.rand, 3, device=x.device)
        return x.sin() + draw(generator=generator) + draw()

    return function, (torch.randn(3), torch.Generator(torch.get_default_device()).manual_seed(3))


def branches() -> tuple[Callable[..., object], Sequence[Any]]:
    def function(x: Tensor) -> Tensor:
        y = torch.cond(x.sum() > 0, lambda z: z.sin(), lambda z: z.cos(), (x,))
        x.mul_(-1)
        return y

    return function, (torch.ones(3),)


@torch.library.custom_op("ctk_zoo::bump", mutates_args={"x"})
def bump(x: Tensor, by: float) -> None:
    x.add_(by)


def custom_operator(compile: Compile, device: str) -> tuple[Step, State]:
    """Versions are left out: Inductor's first call of such an operator counts one less."""
    x = torch.randn(3)

    def function(x: Tensor) -> Tensor:
        bump(x, 2.0)
        return x.sin()

    compiled = compile(function)
    return lambda: compiled(x), lambda: x


def symbolic_batch(compile: Compile, device: str) -> tuple[Step, State]:
    total, sizes = torch.zeros(()), iter((3, 5, 7, 9))

    def function(x: Tensor) -> Tensor:
        total.add_(x.sum())
        return F.dropout(x, 0.5) * x.shape[0]

    compiled = compile(function, dynamic=True)
    return lambda: compiled(torch.randn(next(sizes), 2, device=device)), lambda: [total]


def later_backward(compile: Compile, device: str) -> tuple[Step, State]:
    """The compiled call reads a parameter that a graph of the program has saved before."""
    weight = nn.Parameter(torch.randn(3))
    compiled = compile(lambda w, x: (w * x).sin().sum())

    def step() -> object:
        early = (weight * weight).sum()
        value = compiled(weight, torch.randn(3, device=device))
        early.backward()
        value.backward()
        return value

    return step, lambda: [weight, weight.grad, weight._version]


def own_function() -> tuple[Callable[..., object], Sequence[Any]]:
    return lambda x: Square.apply(x) + 1, (torch.randn(3, requires_grad=True),)


def autocast_around(compile: Compile, device: str) -> tuple[Step, State]:
    """A weight is used inside and outside of the compiled call, in one autocast region."""
    layer = nn.Linear(4, 4)
    compiled = compile(lambda x: layer(x).relu())

    def step() -> object:
        with torch.autocast(device, dtype=torch.bfloat16):
            x = layer(torch.randn(3, 4, device=device))
            y = layer(compiled(x))
        y.float().square().sum().backward()
        return y

    return step, lambda: model_state(layer)


def limited_embedding() -> tuple[Callable[..., object], Sequence[Any]]:
    """Looking rows up shortens those that are too long, in the table itself."""

    def function(rows: Tensor, table: Tensor) -> Tensor:
        return F.embedding(rows, table, max_norm=1.0) * 2

    return function, (torch.tensor([0, 3, 3, 5]), torch.randn(6, 4) * 3)


def _adam(**more: Any) -> Callable[..., Any]:
    return optimizer_step(lambda weights: torch.optim.Adam(weights, lr=0.1, **more))


def _sgd(**more: Any) -> Callable[..., Any]:
    return optimizer_step(lambda weights: torch.optim.SGD(weights, lr=0.1, **more))


OPTIMIZERS = (
    Program("sgd", _sgd()),
    Program("sgd_one_by_one", _sgd(foreach=False)),
    Program("momentum", _sgd(momentum=0.9, nesterov=True, weight_decay=0.1)),
    Program("adam", _adam()),
    Program("adam_foreach", _adam(foreach=True, amsgrad=True)),
    Program("adam_capturable", _adam(capturable=True, foreach=True)),
    Program("adamw", optimizer_step(lambda weights: torch.optim.AdamW(weights, lr=0.1))),
    Program("rmsprop", optimizer_step(lambda weights: torch.optim.RMSprop(weights, lr=0.1))),
)

OTHERS = (
    Program("training", whole_training(small_net)),
    Program("batch_norm_and_dropout", whole_training(Normed)),
    Program("tied_weights_shared_buffers", whole_training(Tied)),
    Program("recurrent_state", whole_training(Recurrent)),
    Program("recurrent_in_place", whole_training(RecurrentInPlace), wrong_with=("inductor",)),
    Program("moving_average", average),
    Program("view", on(writes_a_view)),
    Program("captured_tensors", on(captures)),
    Program("generator", on(generator_argument)),
    Program("cond_and_write", on(branches)),
    Program("custom_operator", custom_operator),
    Program("symbolic_batch", symbolic_batch),
    Program("later_backward", later_backward),
    Program("limited_embedding", on(limited_embedding)),
    Program("own_gradient", on(own_function)),
    Program("autocast_around", autocast_around),
)


def _of_sample(index: int) -> Callable[..., Any]:
    def program(compile: Compile, device: str) -> tuple[Step, State]:
        sample = samples()[index]
        compiled = compile(sample.run, dynamic=True if sample.dynamic else None)
        holds = sample.run.state_dict() if isinstance(sample.run, nn.Module) else {}
        return lambda: compiled(*sample.inputs), lambda: [list(sample.inputs), holds]

    return program


CAPTURED = tuple(Program(each.name, _of_sample(i)) for i, each in enumerate(samples()))

PROGRAMS = (*OPTIMIZERS, *OTHERS, *CAPTURED)
