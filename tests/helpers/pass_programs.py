"""Random programs for the property tests of passes: small, functional, with a mutating epilogue.

A program is a list of steps over a growing pool of tensors. A step takes the first operands from
where it looks on that fit its op; if there are none it is left out. So every list of numbers is a
program.
"""

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from hypothesis import strategies as st
from torch import Tensor, fx
from torch.fx.experimental.proxy_tensor import make_fx

from ctk.compiler.torch_compat.inductor import onednn

aten = torch.ops.aten
ROW = torch.tensor([[0.5, -1.0, 2.0]])
SQUARE = (torch.arange(9.0) - 4).view(3, 3).t()
HALF = torch.full((3,), 0.5)
CASTS = (torch.float64, torch.bfloat16, torch.int32, torch.float16)
INTEGERS = torch.tensor([[1, -127, 3], [100, 0, 127], [-64, 5, -128]], dtype=torch.int8)
PT2E = onednn.quantized_decomposed()
KERNEL = torch.linspace(-0.5, 0.5, 81).view(3, 3, 3, 3)


@dataclass(frozen=True)
class Op:
    """An operation on the first `arity` operands and a number from 0 to 3.

    `fits` says of the operands' shapes whether it can be done.
    """

    run: Callable[..., Tensor]
    arity: int = 1
    fits: Callable[..., bool] = lambda *shapes: True


def is_deep(shape: Sequence[int]) -> bool:
    return len(shape) > 0


def is_matrix(shape: Sequence[int]) -> bool:
    return len(shape) == 2


def broadcast(x: Sequence[int], y: Sequence[int]) -> bool:
    sizes = zip(reversed(x), reversed(y), strict=False)
    return all(a == b or a == 1 or b == 1 for a, b in sizes)


def multiply(x: Sequence[int], y: Sequence[int]) -> bool:
    return len(x) == len(y) == 2 and x[1] == y[0]


def are_linear(x: Sequence[int], y: Sequence[int], bias: Sequence[int]) -> bool:
    return multiply(x, y) and broadcast((x[0], y[1]), bias) and len(bias) < 3


def product(x: Tensor, y: Tensor) -> Tensor:
    return torch.mm(x.tanh(), y.tanh())  # bounded, so that sums stay well conditioned


def convolved(x: Tensor, n: int) -> Tensor:
    """Convolutions over an image of three channels, norms and pools between; `n` says what else."""
    image = x.tanh().t().reshape(1, 3, -1, 1).expand(2, 3, -1, 3).contiguous()
    y = aten.convolution(image, KERNEL, HALF, [1, 1], [1, 1], [1, 1], n == 1, [0, 0], 1).relu()
    z = torch.max_pool2d(y, 2, 1, 1) if n % 2 else y.transpose(2, 3).clone().transpose(2, 3)
    z = aten.convolution(z.tanh(), KERNEL, None, [1, 1], [1, 1], [1, 1], False, [0, 0], 1)
    return (z.softmax(1).view(2, -1)[:, :3] if n == 2 else z.sum((2, 3))) + y.mean()


def in_onednn(x: Tensor, n: int) -> Tensor:
    """Products of `prepack_linear` with operators behind them, and convolutions for its sister."""
    linear, none = torch.ops.mkldnn._linear_pointwise.default, ("none", [], "")
    y = linear(x.tanh(), SQUARE, HALF, *none).sigmoid() * x
    z = x - linear(y, SQUARE, None, *none) if n % 2 else linear(y, SQUARE, None, *none) + y
    image = z.tanh().t().reshape(1, 3, -1, 1).expand(2, 3, -1, 3)
    image = image.contiguous(memory_format=torch.channels_last)
    twice = aten.convolution(image, KERNEL, HALF, [1, 1], [1, 1], [1, 1], False, [0, 0], 1).tanh()
    settings = ([1, 1], [1, 1], [1, 1], False, [0, 0], 1)
    return z + aten.convolution(twice, KERNEL, None, *settings).mean((0, 2, 3))


def quantized(x: Tensor, n: int) -> Tensor:
    """Products of integers with constant ones, that share an operand; an odd `n` turns it."""
    settings = (0.05, 64, 0, 127, torch.uint8)
    numbers = PT2E.quantize_per_tensor.default(x.tanh(), *settings)
    y = PT2E.dequantize_per_tensor.default(numbers, *settings)
    rows = y.t().t() if n % 2 else y.view(1, -1, 3).view(-1, 3)
    weight = PT2E.dequantize_per_channel.default(INTEGERS, HALF, None, 0, -127, 127, torch.int8)
    first = torch.mm(rows, weight.t()) + torch.mm(y, weight.t())
    return first + torch.addmm(HALF, y, weight.t())


def normed(x: Tensor, n: int) -> Tensor:
    """Batch norms of two products: with a constant weight, or (an odd `n`) without."""
    weight = SQUARE + x.amax() if n % 2 else SQUARE
    norm = aten._native_batch_norm_legit_no_training.default
    first = norm(torch.mm(x.tanh(), weight), HALF, None, HALF, HALF, 0.1, 0.5)[0]
    return norm(torch.addmm(HALF, first.tanh(), weight), None, HALF, HALF, HALF, 0.1, 0.5)[0]


def uniform(x: Tensor, n: int) -> Tensor:
    """Operations on uniforms, and of `x` with them: 0, 1 (that change nothing), -0.0 and others."""
    value = (0.0, 1.0, -0.0, 0.5)[n]
    two = torch.full_like(x, value) + torch.zeros_like(x).reshape(x.shape)
    y = torch.where(two.neg() < 2, x.sin() * torch.ones_like(x), two)
    return ((y - torch.full(x.shape, value)) * torch.full(x.shape, value) + two).sin()


def pieces(x: Tensor, n: int) -> Tensor:
    """Parts of `x`, put together: in order, and (an odd `n`) not."""
    a, *more = x.sin().split(1)
    if n % 2:
        return torch.cat([*more, a, x[:1]])[: x.shape[0]].cos()
    whole = torch.cat([a, *more]).cos()
    return torch.cat([torch.cat([whole, a]), x])[: x.shape[0]] * torch.cat([x.split(9)[0], a])[:-1]


def slices(x: Tensor, n: int) -> Tensor:
    """Parts of parts of `x`, items of them, and updates that change nothing (of an odd `n`: do)."""
    rows = x.shape[0]
    part = x[n % 2 :][: rows - n % 2]
    first = x.split(1)[n % rows].squeeze(0) + x[rows // 2 :].select(0, -1)
    y = aten.slice_scatter.default(x.sin(), x[1:], 0, 1, None if n < 2 else rows)
    y = aten.select_scatter.default(y, y.select(0, 0), 0, n % 2 * (rows - 1))
    y = aten.slice_scatter.default(y, y[n % 2 :], 0, n % 2) + aten.slice_scatter.default(y, x, 0)
    return torch.cat([part, y[:1], y[1:], first[None].sin()])[rows - 1 :].cos()


def elsewhere(x: Tensor, n: int) -> Tensor:
    """Constructors that are copied to another device; nobody uses the copies."""
    zeros = torch.zeros(3)
    zeros.to("meta"), torch.arange(n).to("meta"), torch.arange(0.5, 2).to("meta")
    return x * (zeros if n % 2 else torch.full((3,), float(n)).to("meta").to(torch.int64).dim())


def layers(x: Tensor, n: int) -> Tensor:
    """Products with constant weights, side by side, and numbers behind them (0 does not fold)."""
    y = x.tanh()
    first, second = torch.mm(y, SQUARE), torch.mm(y, SQUARE.t() * 2)
    more = torch.addmm(HALF, y, SQUARE) * (n / 2) + ROW, 2 - torch.addmm(HALF, y, SQUARE) / 2
    third = torch.mm((first + second).tanh(), SQUARE) * HALF
    return third + (more[0] - more[1]).tanh() if n else first.t().reshape(second.shape) + second


def attended(x: Tensor, n: int) -> Tensor:
    """Attention that is written out, twice: scaled and masked in different ways."""
    rows, width = x.shape
    none, later = torch.zeros(rows, rows), torch.ones(rows, rows).triu(1) > 0
    for mask in (none, none.masked_fill(later, -torch.inf)):
        y = x.tanh().view(1, 1, rows, width)
        flat = y.transpose(-2, -1).view(1, width, rows)
        scores = torch.bmm(y.view(1, rows, width), flat).view(1, 1, rows, rows)
        scores = scores / 2.0 if n < 2 else scores * 0.5
        scores = scores if n % 2 else scores + mask
        weights = torch.softmax(scores, -1).view(1, rows, rows)
        x = torch.bmm(weights, y.view(1, rows, width)).view(1, 1, rows, width)[0, 0]
    return x


def updates(x: Tensor, n: int) -> Tensor:
    """Parts of new tensors, written anew; of an odd `n` the old ones are read again."""
    old = x.sin()
    first = aten.select_scatter.default(old, x.select(0, 0), 0, -1)
    second = aten.slice_scatter.default(first.neg(), x[:1], 0, 0, 1)
    return second + old * n if n % 2 else aten.masked_fill.Scalar(second, x > 0, float(n))


def shuffled(x: Tensor, n: int) -> Tensor:
    """Rows added at indices that differ, as far as the pass can tell, and (an odd `n`) not."""
    order = torch.randperm(x.shape[0]) if n < 2 else torch.arange(x.shape[0]).flip(0)
    order = order % 2 if n % 2 and x.shape[0] > 1 else order
    first = torch.index_add(x, 0, order[:1], x.sin()[:1])
    return aten.index_put.default(torch.full_like(first, 0.0), [order], first, True)


def casts(x: Tensor, n: int) -> Tensor:
    """Chains of casts: back to the type before, and on to another; some round or wrap around."""
    rounded = x.to(CASTS[n]).to(CASTS[n - 1])
    return rounded.double().to(rounded.dtype).float() + x.double().float().bfloat16()


def scattered(x: Tensor, n: int) -> Tensor:
    """Numbers and maxima put into each row of zeros; of an odd `n` into ones."""
    start = torch.full_like(x, float(n % 2))
    largest, places = x.max(-1, keepdim=True)
    first = start.scatter(-1, places, n / 2) * x
    return first + aten.scatter_add.default(start, -1, places, largest).exp()


def rows_plus(x: Tensor, n: int) -> Tensor:
    return (ROW * n).expand(3, 3) + x


UNARY = {
    "sin": Op(lambda x, _: x.sin()),
    "relu": Op(lambda x, _: x.relu()),
    "neg": Op(lambda x, _: x.neg()),
    "neg neg": Op(lambda x, _: x.neg().neg()),
    "clone": Op(lambda x, _: x.clone()),
    "dense": Op(lambda x, _: x.clone(memory_format=torch.contiguous_format)),
    "alias": Op(lambda x, _: aten.alias.default(x)),
    "add 0": Op(lambda x, _: x + 0),
    "mul 1": Op(lambda x, _: x * 1),
    "div 1": Op(lambda x, _: x / 1.0),
    "sub 0": Op(lambda x, _: x - 0),
    "pow 1": Op(lambda x, _: x**1),
    "mul n": Op(lambda x, n: x * n),
    "mul -0.0": Op(lambda x, _: x * -0.0),
    "repeat": Op(lambda x, _: x.repeat([1] * x.dim())),
    "pad 0": Op(lambda x, _: aten.constant_pad_nd.default(x, [0, 0]), fits=is_deep),
    "draw": Op(lambda x, _: torch.rand_like(x)),
}
VIEWS = {
    "same view": Op(lambda x, _: x.reshape(x.shape)),
    "flat": Op(lambda x, _: x.reshape(-1)),
    "flat and back": Op(lambda x, _: x.reshape(-1).view(x.shape)),
    "t": Op(lambda x, _: x.t(), fits=is_matrix),
    "t t": Op(lambda x, _: x.t().t(), fits=is_matrix),
    "transpose": Op(lambda x, _: x.transpose(0, -1), fits=is_deep),
    "transpose twice": Op(lambda x, _: x.transpose(0, -1).transpose(0, -1), fits=is_deep),
    "transposes": Op(lambda x, n: x.transpose(0, n % x.dim()).transpose(0, -1), fits=is_deep),
    "same permute": Op(lambda x, _: x.permute(list(range(x.dim())))),
    "permute": Op(lambda x, _: x.permute(list(reversed(range(x.dim()))))),
    "bits": Op(lambda x, _: x.view(torch.int32).view(torch.float32)),
    "expand": Op(lambda x, _: x.expand(x.shape)),
    "expand more": Op(lambda x, _: x.unsqueeze(0).expand(3, *x.shape), fits=lambda s: len(s) < 2),
    "whole slice": Op(lambda x, _: aten.slice.Tensor(x, 0, 0, 9), fits=is_deep),
    "every other": Op(lambda x, _: aten.slice.Tensor(x, 0, 0, 9, 2), fits=is_deep),
    "rest": Op(lambda x, _: x[1:], fits=lambda s: len(s) > 0 and s[0] > 1),
    "select": Op(lambda x, n: x.select(0, n % x.shape[0]), fits=is_deep),
    "unsqueeze": Op(lambda x, _: x.unsqueeze(0), fits=lambda s: len(s) < 3),
    "squeeze": Op(lambda x, _: x.squeeze(0), fits=is_deep),
}
OTHERS = {
    "add": Op(lambda x, y, _: x + y, 2, broadcast),
    "sub": Op(lambda x, y, _: x - y, 2, broadcast),
    "mul": Op(lambda x, y, _: x * y, 2, broadcast),
    "where": Op(lambda x, y, _: torch.where(x > 0, x, y), 2, broadcast),
    "mm": Op(lambda x, y, _: product(x, y), 2, multiply),
    "mm + c": Op(lambda x, y, c, _: product(x, y) + c, 3, are_linear),
    "c + mm": Op(lambda x, y, c, _: c + product(x, y), 3, are_linear),
    "sum": Op(lambda x, n: x.sum(n % x.dim()), fits=is_deep),
    "amax": Op(lambda x, _: x.amax()),
    "mean": Op(lambda x, _: x.mean(-1, keepdim=True), fits=is_deep),
    "full": Op(lambda _, n: torch.full((3,), float(n))),
    "arange": Op(lambda _x, _n: torch.arange(3.0)),
    "row": Op(lambda _x, _n: ROW),
    "rows + x": Op(rows_plus, fits=lambda s: broadcast(s, (3, 3))),
    "square": Op(lambda _x, _n: SQUARE),
}
SHAPES = {  # of more than one operator, as passes look for them: twice in each
    "convolved": Op(convolved, fits=lambda s: len(s) == 2 and s[1] == 3 and s[0] > 0),
    "in oneDNN": Op(in_onednn, fits=lambda s: len(s) == 2 and s[1] == 3 and s[0] > 0),
    "quantized": Op(quantized, fits=lambda s: len(s) == 2 and s[1] == 3 and s[0] > 0),
    "uniform": Op(uniform),
    "casts": Op(casts),
    "scattered": Op(scattered, fits=lambda s: len(s) > 0 and min(s) > 0),
    "layers": Op(layers, fits=lambda s: len(s) == 2 and s[1] == 3),
    "elsewhere": Op(elsewhere, fits=lambda s: broadcast(s, (3,))),
    "pieces": Op(pieces, fits=lambda s: len(s) > 0 and s[0] > 0),
    "attention": Op(attended, fits=lambda s: len(s) == 2 and min(s) > 0),
    "slices": Op(slices, fits=lambda s: len(s) > 0 and s[0] > 0),
    "updates": Op(updates, fits=lambda s: len(s) > 0 and s[0] > 0),
    "shuffled": Op(shuffled, fits=lambda s: len(s) > 0 and s[0] > 0),
    "batch norm": Op(normed, fits=lambda s: len(s) == 2 and s[1] == 3),
}
OPS = {**UNARY, **VIEWS, **OTHERS, **SHAPES}
AGAIN = "again"

Step = tuple[str, tuple[int, int, int], int]


@dataclass(frozen=True)
class Program:
    """A program as numbers; `run` is what they mean.

    Attributes:
        steps: Op, how far back in the pool it looks for its operands, and a number.
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
        pool = list(inputs)
        done: list[tuple[Op, Sequence[Tensor], int]] = []
        for name, back, number in self.steps:
            if name == AGAIN:
                step = done[-1 - back[0] % len(done)] if done else None
            else:
                operands = fitting(OPS[name], pool, back)
                step = None if operands is None else (OPS[name], operands, number)
            if step is not None:
                op, operands, number = step
                pool.append(op.run(*operands, number))
                done.append(step)
        outputs = tuple(at(pool, back) for back in self.outputs)
        for index, back in self.writes:
            if at(pool, back).shape == inputs[index].shape:
                inputs[index].copy_(at(pool, back) * 2)  # a new value, as functionalization has it
        return outputs

    def inputs(self) -> tuple[Tensor, ...]:
        """Return a 2x3, a 3x3 and a row of 3, of few different numbers, zeros of both signs too."""
        generator = torch.Generator().manual_seed(self.seed)
        values = torch.tensor([-1.5, -1.0, -0.0, 0.0, 0.5, 1.0, 2.0])
        found: list[Tensor] = []
        for shape, is_transposed in zip(((2, 3), (3, 3), (3,)), self.transposed, strict=True):
            sizes = tuple(reversed(shape)) if is_transposed else shape
            drawn = values[torch.randint(len(values), sizes, generator=generator)]
            found.append(drawn.permute(*reversed(range(len(sizes)))) if is_transposed else drawn)
        return tuple(found)

    def graph(self, tracing_mode: str = "fake") -> fx.GraphModule:
        """Return the ATen graph of the program."""
        trace = make_fx(self.run, tracing_mode=tracing_mode, _allow_non_fake_inputs=True)
        return trace(*self.inputs())


def at(pool: Sequence[Tensor], back: int) -> Tensor:
    """Return the tensor that was added to the pool `back` tensors before the last."""
    return pool[-1 - back % len(pool)]


def fitting(op: Op, pool: Sequence[Tensor], back: Sequence[int]) -> Sequence[Tensor] | None:
    """Return the first operands, from `back` on, whose shapes fit."""
    for further in itertools.product(range(len(pool)), repeat=op.arity):
        operands = [at(pool, i + j) for i, j in zip(back, further, strict=False)]
        if op.fits(*(tensor.shape for tensor in operands)):
            return operands
    return None


@st.composite
def programs(draw: st.DrawFn) -> Program:
    """Draw a program of up to 10 steps, 1 to 3 outputs, and up to 2 inputs that it writes to."""
    back = st.sampled_from((0, 0, 0, 1, 1, 2, 3, 5))  # mostly chains, so that little is dead
    kinds = (UNARY, VIEWS, OTHERS, SHAPES, {AGAIN: 0})
    names = st.one_of(*(st.sampled_from(list(ops)) for ops in kinds))
    step = st.tuples(names, st.tuples(back, back, back), st.integers(0, 3))
    return Program(
        steps=tuple(draw(st.lists(step, min_size=1, max_size=10))),
        outputs=tuple(draw(st.lists(back, min_size=1, max_size=3))),
        writes=tuple(draw(st.lists(st.tuples(st.integers(0, 2), back), max_size=2))),
        transposed=tuple(draw(st.tuples(st.booleans(), st.booleans(), st.just(False)))),
        seed=draw(st.integers(0, 3)),
    )
