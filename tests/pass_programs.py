"""Random programs for the property tests of passes: small, functional, with a mutating epilogue.

A program is a list of steps over a growing pool of tensors. A step whose operands do not fit its
op's shapes is left out, so that every list of numbers is a program.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from hypothesis import strategies as st
from torch import Tensor, fx
from torch.fx.experimental.proxy_tensor import make_fx

aten = torch.ops.aten
Op = Callable[..., Tensor | None]
"""Takes three tensors and a small number; None where they do not fit."""

CONSTANTS = (torch.tensor([[0.5, -1.0, 2.0]]), torch.arange(9.0).view(3, 3).t() - 4)


def _product(x: Tensor, y: Tensor) -> Tensor | None:
    return torch.mm(x, y) if x.dim() == y.dim() == 2 and x.shape[1] == y.shape[0] else None


def _with_bias(x: Tensor, y: Tensor, bias: Tensor, *, first: bool) -> Tensor | None:
    product = _product(x.tanh(), y.tanh())
    if product is None or not _fit(product, bias):
        return None
    return torch.add(bias, product) if first else torch.add(product, bias)


def _fit(x: Tensor, y: Tensor) -> bool:
    sizes = zip(reversed(x.shape), reversed(y.shape), strict=False)
    return all(a == b or a == 1 or b == 1 for a, b in sizes)


def _viewed(x: Tensor, *sizes: int) -> Tensor | None:
    return x.view(*sizes) if x.is_contiguous() else None


UNARY: dict[str, Op] = {
    "sin": lambda x, *_: x.sin(),
    "relu": lambda x, *_: x.relu(),
    "neg": lambda x, *_: x.neg(),
    "neg neg": lambda x, *_: x.neg().neg(),
    "clone": lambda x, *_: x.clone(),
    "contiguous clone": lambda x, *_: x.clone(memory_format=torch.contiguous_format),
    "alias": lambda x, *_: aten.alias.default(x),
    "add 0": lambda x, *_: x + 0,
    "mul 1": lambda x, *_: x * 1,
    "div 1": lambda x, *_: x / 1.0,
    "sub 0": lambda x, *_: x - 0,
    "pow 1": lambda x, *_: x**1,
    "mul n": lambda x, _y, _z, n: x * n,
    "mul -0.0": lambda x, *_: x * -0.0,
    "draw": lambda x, *_: torch.rand_like(x),
}
VIEWS: dict[str, Op] = {
    "same view": lambda x, *_: _viewed(x, *x.shape),
    "flat": lambda x, *_: _viewed(x, -1),
    "flat and back": lambda x, *_: (
        flat.view(x.shape) if (flat := _viewed(x, -1)) is not None else None
    ),
    "t": lambda x, *_: x.t() if x.dim() == 2 else None,
    "t t": lambda x, *_: x.t().t() if x.dim() == 2 else None,
    "transpose": lambda x, *_: x.transpose(0, -1) if x.dim() else None,
    "transpose twice": lambda x, *_: x.transpose(0, -1).transpose(0, -1) if x.dim() else None,
    "same permute": lambda x, *_: x.permute(*range(x.dim())),
    "permute": lambda x, *_: x.permute(*reversed(range(x.dim()))),
    "expand": lambda x, *_: x.expand(x.shape),
    "expand more": lambda x, *_: x.expand(3, *x.shape[1:]) if x.shape[:1] == (1,) else None,
    "whole slice": lambda x, *_: aten.slice.Tensor(x, 0, 0, 9) if x.dim() else None,
    "every other": lambda x, *_: aten.slice.Tensor(x, 0, 0, 9, 2) if x.dim() else None,
    "rest": lambda x, *_: x[1:] if x.dim() and x.shape[0] > 1 else None,
    "select": lambda x, _y, _z, n: x.select(0, n % x.shape[0]) if x.dim() else None,
    "unsqueeze": lambda x, *_: x.unsqueeze(0) if x.dim() < 3 else None,
    "squeeze": lambda x, *_: x.squeeze(0) if x.dim() else None,
}
OTHERS: dict[str, Op] = {
    "add": lambda x, y, *_: x + y if _fit(x, y) else None,
    "sub": lambda x, y, *_: x - y if _fit(x, y) else None,
    "mul": lambda x, y, *_: x * y if _fit(x, y) else None,
    "where": lambda x, y, *_: torch.where(x > 0, x, y) if _fit(x, y) else None,
    "mm": lambda x, y, *_: _product(x.tanh(), y.tanh()),
    "mm + c": lambda x, y, c, _: _with_bias(x, y, c, first=False),
    "c + mm": lambda x, y, c, _: _with_bias(x, y, c, first=True),
    "sum": lambda x, _y, _z, n: x.sum(n % x.dim()) if x.dim() else None,
    "amax": lambda x, *_: x.amax(),
    "mean": lambda x, *_: x.mean(-1, keepdim=True) if x.dim() else None,
    "full": lambda _x, _y, _z, n: torch.full((3,), float(n)),
    "arange": lambda *_: torch.arange(3.0),
    "row": lambda *_: CONSTANTS[0],
    "square": lambda *_: CONSTANTS[1],
}
OPS = {**UNARY, **VIEWS, **OTHERS}
AGAIN = "again"

Step = tuple[str, tuple[int, int, int], int]


@dataclass(frozen=True)
class Program:
    """A program as numbers; `run` is what they mean.

    Attributes:
        steps: Op, how far back in the pool its operands are, and a number.
        outputs: How far back in the pool each output is.
        writes: (input, how far back its new value is): `input.copy_(value)` at the end.
        transposed: Which inputs are not contiguous.
        seed: Of the inputs and of the random draws.
    """

    steps: tuple[Step, ...]
    outputs: tuple[int, ...]
    writes: tuple[tuple[int, int], ...]
    transposed: tuple[bool, ...]
    seed: int

    def run(self, *inputs: Tensor) -> tuple[Tensor, ...]:
        """Run the program; an `again` repeats an earlier step on the same operands."""
        pool, done = list(inputs), []
        for name, back, number in self.steps:
            if name == AGAIN:
                if not done:
                    continue
                op, operands, number = done[back[0] % len(done)]
            else:
                op, operands = OPS[name], [pool[-1 - i % len(pool)] for i in back]
            value = op(*operands, number)
            if value is not None:
                pool.append(value)
                done.append((op, operands, number))
        outputs = tuple(pool[-1 - i % len(pool)] for i in self.outputs)
        for index, back in self.writes:
            value = pool[-1 - back % len(pool)]
            if value.shape == inputs[index].shape:
                inputs[index].copy_(value)
        return outputs

    def inputs(self) -> tuple[Tensor, ...]:
        """Return a 2x3, a 3x3 and a row of 3, of few different numbers, zeros of both signs too."""
        generator = torch.Generator().manual_seed(self.seed)
        values = torch.tensor([-1.5, -1.0, -0.0, 0.0, 0.5, 1.0, 2.0])
        found = []
        for shape, is_transposed in zip(((2, 3), (3, 3), (3,)), self.transposed, strict=True):
            sizes = tuple(reversed(shape)) if is_transposed else shape
            drawn = values[torch.randint(len(values), sizes, generator=generator)]
            found.append(drawn.permute(*reversed(range(len(sizes)))) if is_transposed else drawn)
        return tuple(found)

    def graph(self, tracing_mode: str = "fake") -> fx.GraphModule:
        """Return the ATen graph of the program."""
        trace = make_fx(self.run, tracing_mode=tracing_mode, _allow_non_fake_inputs=True)
        return trace(*self.inputs())


@st.composite
def programs(draw: st.DrawFn) -> Program:
    """Draw a program of up to 10 steps, 1 to 3 outputs, and up to 2 inputs that it writes to."""
    back = st.integers(0, 7)
    names = st.one_of(*(st.sampled_from(list(ops)) for ops in (UNARY, VIEWS, OTHERS, {AGAIN: 0})))
    step = st.tuples(names, st.tuples(back, back, back), st.integers(0, 3))
    return Program(
        steps=tuple(draw(st.lists(step, min_size=1, max_size=10))),
        outputs=tuple(draw(st.lists(back, min_size=1, max_size=3))),
        writes=tuple(draw(st.lists(st.tuples(st.integers(0, 2), back), max_size=2))),
        transposed=tuple(draw(st.tuples(st.booleans(), st.booleans(), st.just(False)))),
        seed=draw(st.integers(0, 3)),
    )
