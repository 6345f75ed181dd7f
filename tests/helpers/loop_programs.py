"""Random programs for the loop IR: pointwise, views, reductions, joins, gathers, of several types.

A program is a list of steps over a growing pool of tensors, as in `pass_programs.py`: a step takes
the first operands from where it looks on that fit its op, so that every list of numbers is one.

Steps with jumps (comparisons, roundings, argmax) take only exact values: those of inputs, and of
arithmetic that IEEE fixes. So two correct results differ by roundings, never by a jump.
"""

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from hypothesis import strategies as st
from torch import Tensor, fx
from torch.fx.experimental.proxy_tensor import make_fx

aten = torch.ops.aten
FLOATS = (torch.float32, torch.float64, torch.bfloat16, torch.float16)
INTEGERS = (torch.int64, torch.int32, torch.int8, torch.uint8)


@dataclass(frozen=True)
class Item:
    """A tensor of the pool; `exact` if every correct implementation gives the same bits."""

    tensor: Tensor
    exact: bool = True


@dataclass(frozen=True)
class Op:
    """An operation on the first `arity` operands and a number from 0 to 3.

    Attributes:
        run: Computes it.
        fits: Whether it can be done with operands.
        arity: How many operands it has.
        jumps: It needs exact operands.
        rounds: Its result is not exact.
    """

    run: Callable[..., Tensor]
    fits: Callable[..., bool] = lambda *_: True
    arity: int = 1
    jumps: bool = False
    rounds: bool = False


def is_float(*tensors: Tensor) -> bool:
    return all(tensor.dtype.is_floating_point for tensor in tensors)


def is_integer(x: Tensor) -> bool:
    return x.dtype in INTEGERS


def is_number(*tensors: Tensor) -> bool:
    return all(tensor.dtype != torch.bool for tensor in tensors)


def is_deep(x: Tensor) -> bool:
    return x.dim() > 0


def is_filled(x: Tensor) -> bool:
    return x.dim() > 0 and min(x.shape) > 0


def broadcast(x: Tensor, y: Tensor) -> bool:
    sizes = zip(reversed(x.shape), reversed(y.shape), strict=False)
    return all(a == b or a == 1 or b == 1 for a, b in sizes)


def alike(x: Tensor, y: Tensor) -> bool:
    return broadcast(x, y) and is_number(x, y)


def floats_alike(x: Tensor, y: Tensor) -> bool:
    return broadcast(x, y) and is_float(x, y)


def joins(x: Tensor, y: Tensor) -> bool:
    return x.dim() == y.dim() > 0 and x.shape[1:] == y.shape[1:]


def picks(x: Tensor, index: Tensor) -> bool:
    return is_filled(x) and index.dtype == torch.int64 and index.dim() == 1


def axis(x: Tensor, n: int) -> int:
    return n % x.dim()


def unary(f: Callable[[Tensor], Tensor], **options: bool) -> Op:
    return Op(lambda x, _: f(x), is_float, **options)


def function(f: Callable[[Tensor], Tensor]) -> Op:
    return Op(lambda x, _: f(x), is_float, rounds=True)


def binary(
    f: Callable[[Tensor, Tensor], Tensor], fits: Callable[..., bool] = alike, **options: bool
) -> Op:
    return Op(lambda x, y, _: f(x, y), fits, 2, **options)


def places(index: Tensor, size: int) -> Tensor:
    """Return positions within a size, of any integers."""
    return index.remainder(size)


def summed_into(x: Tensor, index: Tensor, _: int) -> Tensor:
    return torch.zeros_like(x).index_add(
        0, places(index, x.shape[0]), x[:1].expand(index.shape[0], *x.shape[1:])
    )


def gathered(x: Tensor, n: int) -> Tensor:
    order = torch.arange(x.shape[0]).add(n).remainder(x.shape[0])
    return x.gather(0, order.view(-1, *[1] * (x.dim() - 1)).expand(x.shape))


def picked(x: Tensor, n: int) -> Tensor:
    rows = torch.arange(x.shape[0])
    return x.mul(2).log_softmax(1)[rows, places(rows * (n + 1), x.shape[1])]


def rotated(x: Tensor, n: int) -> Tensor:
    dim = axis(x, n)
    half = x.shape[dim] // 2
    low, high = x.narrow(dim, 0, half), x.narrow(dim, half, x.shape[dim] - half)
    return torch.cat([-high, low + 1], dim)


def layer_norm(x: Tensor, _: int) -> Tensor:
    return aten.native_layer_norm(x, [x.shape[-1]], None, None, 1e-2)[0]


POINTWISE = {
    "neg": Op(lambda x, _: x.neg(), is_number),
    "abs": Op(lambda x, _: x.abs(), is_number),
    "relu": Op(lambda x, _: x.relu(), is_number),
    "add": binary(torch.add),
    "sub": binary(torch.sub),
    "mul": binary(torch.mul),
    "add n": Op(lambda x, n: x + n, is_number),
    "add n y": Op(lambda x, y, n: torch.add(x, y, alpha=n), alike, 2),
    "div 4": Op(lambda x, _: x / 4, is_float),
    "maximum": binary(torch.maximum),
    "minimum": binary(torch.minimum),
    "where": binary(lambda x, y: torch.where(x > 0, x, y), jumps=True),
    "floor": unary(torch.floor, jumps=True),
    "round": unary(torch.round, jumps=True),
    "sign": Op(lambda x, _: x.sign(), is_number, jumps=True),
    "remainder": Op(lambda x, n: x.remainder(n + 1), is_number, jumps=True),
    "fmod": Op(lambda x, n: x.fmod(n + 1), is_number, jumps=True),
    "floor div": Op(lambda x, n: x.div(n + 1, rounding_mode="floor"), is_number, jumps=True),
    "trunc div": Op(lambda x, n: x.div(n + 1, rounding_mode="trunc"), is_number, jumps=True),
    "bits": Op(lambda x, n: (x & (n + 2)) ^ (x | 5), is_integer),
    "not": Op(lambda x, _: x.logical_not(), jumps=True),
    "clamp": Op(lambda x, n: x.clamp(-n, n), is_number),
    "fill": Op(lambda x, n: x.masked_fill(x > 0, n), is_number, jumps=True),
}
COMPARISONS = {
    "eq": binary(torch.eq, jumps=True),
    "lt": binary(torch.lt, jumps=True),
    "ge n": Op(lambda x, n: x >= n, jumps=True),
}
FUNCTIONS = {
    "exp": function(lambda x: x.tanh().exp()),
    "log": function(lambda x: (x.abs() + 0.5).log()),
    "sqrt": function(lambda x: (x.abs() + 0.5).sqrt()),
    "rsqrt": function(lambda x: (x.abs() + 0.5).rsqrt()),
    "sin": function(torch.sin),
    "tanh": function(torch.tanh),
    "sigmoid": function(torch.sigmoid),
    "erf": function(torch.erf),
    "gelu": function(torch.nn.functional.gelu),
    "div": binary(lambda x, y: x / (y.abs() + 1), floats_alike, rounds=True),
    "pow": Op(lambda x, n: x.tanh() ** (n + 1), is_float, rounds=True),
}
CASTS = {
    str(dtype): Op(lambda x, _, dtype=dtype: x.to(dtype), jumps=True) for dtype in FLOATS[:3]
} | {
    "int32": Op(
        lambda x, _: x.clamp(-9, 9).to(torch.int32),
        lambda x: is_number(x) and x.dtype != torch.uint8,
        jumps=True,
    ),
    "bool": Op(lambda x, _: x.to(torch.bool), jumps=True),
}
VIEWS = {
    "flat": Op(lambda x, _: x.reshape(-1)),
    "transpose": Op(lambda x, n: x.transpose(0, axis(x, n)), is_deep),
    "permute": Op(lambda x, _: x.permute(list(reversed(range(x.dim()))))),
    "unsqueeze": Op(lambda x, n: x.unsqueeze(n % (x.dim() + 1)), lambda x: x.dim() < 3),
    "squeeze": Op(lambda x, _: x.squeeze()),
    "expand": Op(lambda x, _: x.unsqueeze(0).expand(3, *x.shape), lambda x: x.dim() < 3),
    "rest": Op(lambda x, _: x[1:], is_filled),
    "every other": Op(lambda x, _: x[::2], is_deep),
    "last columns": Op(lambda x, _: x[..., -1:], is_filled),
    "select": Op(lambda x, n: x.select(axis(x, n), 0), is_filled),
    "flip": Op(lambda x, n: x.flip(axis(x, n)), is_deep),
    "clone": Op(lambda x, _: x.clone(memory_format=torch.contiguous_format)),
}
REDUCTIONS = {
    "sum": Op(lambda x, n: x.sum(axis(x, n), keepdim=n > 1), is_deep, rounds=True),
    "sum all": Op(lambda x, _: x.sum(), rounds=True),
    "mean": Op(
        lambda x, n: x.mean(axis(x, n), keepdim=n > 1),
        lambda x: is_filled(x) and is_float(x),
        rounds=True,
    ),
    "amax": Op(lambda x, n: x.amax(axis(x, n), keepdim=n > 1), is_filled),
    "amin": Op(lambda x, _: x.amin(), is_filled),
    "argmax": Op(
        lambda x, n: x.argmax(axis(x, n)), lambda x: is_filled(x) and is_number(x), jumps=True
    ),
    "any": Op(lambda x, n: x.any(axis(x, n)), is_deep, jumps=True),
    "var": Op(
        lambda x, n: x.var(axis(x, n), correction=0),
        lambda x: is_filled(x) and is_float(x),
        rounds=True,
    ),
    "softmax": Op(
        lambda x, n: x.softmax(axis(x, n)), lambda x: is_filled(x) and is_float(x), rounds=True
    ),
    "layer norm": Op(layer_norm, lambda x: is_filled(x) and is_float(x), rounds=True),
    "cumsum": Op(
        lambda x, n: x.cumsum(axis(x, n)), lambda x: is_deep(x) and is_number(x), rounds=True
    ),
}
MOVES = {
    "cat": Op(lambda x, y, _: torch.cat([x, y, x]), joins, 2),
    "rotate": Op(rotated, lambda x: is_deep(x) and is_number(x) and is_filled(x)),
    "stack": Op(
        lambda x, n: torch.stack([x, x + 1], n % (x.dim() + 1)),
        lambda x: x.dim() < 3 and is_number(x),
    ),
    "pad": Op(
        lambda x, n: torch.nn.functional.pad(x, (1, n), value=n),
        lambda x: is_deep(x) and is_number(x),
    ),
    "gather": Op(gathered, is_filled),
    "picked": Op(
        picked, lambda x: is_filled(x) and is_float(x) and x.dim() == 2, jumps=True, rounds=True
    ),
    "rows": Op(lambda x, i, _: x[places(i, x.shape[0])], picks, 2, jumps=True),
    "index_select": Op(
        lambda x, i, n: x.index_select(axis(x, n), places(i, x.shape[axis(x, n)])),
        picks,
        2,
        jumps=True,
    ),
    "index_add": Op(
        summed_into, lambda x, i: picks(x, i) and is_float(x), 2, jumps=True, rounds=True
    ),
    "triu": Op(lambda x, n: x.triu(n - 1), lambda x: x.dim() == 2 and is_number(x)),
    "arange": Op(lambda x, n: torch.arange(x.numel()).add(n)),
    "full": Op(lambda x, n: torch.full_like(x, n)),
    "mm": Op(
        lambda x, _: torch.mm(x.tanh(), x.tanh().t()),
        lambda x: x.dim() == 2 and is_float(x),
        rounds=True,
    ),
}
OPS = {**POINTWISE, **COMPARISONS, **FUNCTIONS, **CASTS, **VIEWS, **REDUCTIONS, **MOVES}

Step = tuple[str, tuple[int, int], int]


@dataclass(frozen=True)
class Program:
    """A program as numbers; `run` is what they mean.

    Attributes:
        steps: Op, how far back in the pool it looks for its operands, and a number.
        outputs: How far back in the pool each output is.
        sizes: Rows and columns of the inputs.
        dtype: Of the floats.
        seed: Of the inputs.
        special: Whether there are infinities and NaNs among them.
    """

    steps: tuple[Step, ...]
    outputs: tuple[int, ...]
    sizes: tuple[int, int]
    dtype: torch.dtype
    seed: int
    special: bool = False

    def run(self, *inputs: Tensor) -> tuple[Tensor, ...]:
        """Run the program."""
        pool = [Item(tensor) for tensor in inputs]
        for name, back, number in self.steps:
            operands = _fitting(OPS[name], pool, back)
            if operands is not None:
                result = OPS[name].run(*(item.tensor for item in operands), number)
                exact = all(item.exact for item in operands) and not OPS[name].rounds
                pool.append(Item(result, exact))
        return tuple(_at(pool, back).tensor for back in self.outputs)

    def inputs(self) -> tuple[Tensor, ...]:
        """Return a matrix, a transposed one, a row, integers, positions and a mask."""
        generator = torch.Generator().manual_seed(self.seed)
        rows, columns = self.sizes

        def drawn(*shape: int) -> Tensor:
            return torch.randint(-4, 5, shape, generator=generator)

        x, y, row = drawn(rows, columns) / 2, drawn(columns, rows) / 2, drawn(columns) / 4
        if self.special and x.numel():
            x.view(-1)[::3] = torch.tensor([torch.nan, torch.inf, -torch.inf, -0.0])[self.seed]
        floats = (x.to(self.dtype), y.t().to(self.dtype), row.to(self.dtype))
        return (*floats, drawn(rows, columns).int(), drawn(columns), drawn(rows, columns) > 0)

    def graph(self, tracing_mode: str = "fake") -> fx.GraphModule:
        """Return the ATen graph of the program."""
        trace = make_fx(self.run, tracing_mode=tracing_mode, _allow_non_fake_inputs=True)
        return trace(*self.inputs())


def _at(pool: Sequence[Item], back: int) -> Item:
    return pool[-1 - back % len(pool)]


def _fitting(op: Op, pool: Sequence[Item], back: Sequence[int]) -> list[Item] | None:
    """Return the first operands, from `back` on, that an op can take."""
    for further in itertools.product(range(len(pool)), repeat=op.arity):
        items = [_at(pool, i + j) for i, j in zip(back, further, strict=False)]
        if op.jumps and not all(item.exact for item in items):
            continue
        if op.fits(*(item.tensor for item in items)):
            return items
    return None


@st.composite
def loop_programs(draw: st.DrawFn) -> Program:
    """Draw a program of up to 9 steps and 1 to 3 outputs."""
    back = st.sampled_from((0, 0, 0, 1, 1, 2, 3, 5))  # mostly chains
    kinds = (POINTWISE, FUNCTIONS, VIEWS, REDUCTIONS, MOVES, {**COMPARISONS, **CASTS})
    names = st.one_of(*(st.sampled_from(list(ops)) for ops in kinds))
    step = st.tuples(names, st.tuples(back, back), st.integers(0, 3))
    return Program(
        steps=tuple(draw(st.lists(step, min_size=1, max_size=9))),
        outputs=tuple(draw(st.lists(back, min_size=1, max_size=3))),
        sizes=draw(st.sampled_from(((5, 3), (2, 8), (1, 4), (4, 1), (9, 17), (0, 3)))),
        dtype=draw(st.sampled_from(FLOATS)),
        seed=draw(st.integers(0, 3)),
        special=draw(st.booleans()),
    )
