"""Custom operators that write: into their operands where those are free, else into copies."""

import random
from collections.abc import Callable, Sequence

import pytest
import torch
from torch import Tensor

from ctk.compiler.pipeline import compile_fx
from ctk.toolkit.compile_log.recorder import Recorder, Veto

STEP = "reinplace_operators"


@torch.library.custom_op("reinplaced::add_", mutates_args={"x"})
def add_(x: Tensor, number: float) -> None:
    x.add_(number)


@torch.library.custom_op("reinplaced::scale_", mutates_args={"x"})
def scale_(x: Tensor, y: Tensor) -> Tensor:
    total = (x * y).sum()
    x.mul_(y)
    return total


@scale_.register_fake
def _(x, y):
    return x.new_empty(())


@torch.library.custom_op("reinplaced::mix_", mutates_args={"x", "y"})
def mix_(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    old = x.clone()
    x.add_(y)
    y.sub_(old)
    return x + y, x * y


@mix_.register_fake
def _(x, y):
    return torch.empty_like(x), torch.empty_like(x)


@torch.library.custom_op("reinplaced::count_", mutates_args={"xs"})
def count_(xs: list[Tensor]) -> None:
    for number, x in enumerate(xs):
        x.add_(number + 1)


def run(function, inputs, veto=None, *, dynamic=False, **config):
    """Compile and run a function; compare results and inputs with eager; return the rewrites."""
    torch._dynamo.reset()
    recorder = Recorder(veto, keep_rewrites=True)

    def backend(gm, example_inputs):
        return compile_fx(gm, example_inputs, config, recorder)

    mine, others = [x.clone() for x in inputs], [x.clone() for x in inputs]
    expected = function(*others)
    found = torch.compile(function, backend=backend, dynamic=dynamic)(*mine)
    for a, b in zip([*found, *mine], [*expected, *others], strict=True):
        assert a.stride() == b.stride()
        torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-5, equal_nan=True)
    records = [p for p in recorder.log.passes() if p.id.name == STEP]
    return [r for record in records for r in record.rewrites if not r.vetoed]


X, Y = torch.linspace(-1, 1, 12).view(4, 3), torch.linspace(0, 2, 12).view(4, 3)


def written(x, y):
    z = x.sin()
    add_(z, 1.0)
    return (z * 2,)


def written_input(x, y):
    add_(x, 1.0)
    return (x * y,)


def written_memory(x, y):
    z = torch.empty_like(x)
    z.copy_(y)
    return (scale_(z, x) + z,)


def written_parts(x, y):
    z = x.cos()
    add_(z[1:3], 1.0)
    add_(z[:, 1], 2.0)
    add_(z.view(-1)[2:5], 3.0)
    return (z,)


def written_list(x, y):
    z = x.cos()
    count_([z, y.sin()])
    return (z,)


def written_twice(x, y):
    z = x.cos()
    total, product = mix_(z, y)
    return z, total, product


@pytest.mark.parametrize("codegen", ["c", "eager"])
@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize(
    ("function", "count"),
    [(written, 1), (written_input, 1), (written_memory, 1), (written_parts, 3), (written_list, 1),
     (written_twice, 1)],
)  # fmt: skip
def test_an_operator_writes_into_a_free_operand(function, count, codegen, dynamic):
    assert len(run(function, [X, Y], codegen=codegen, dynamic=dynamic)) == count


def old_value_read(x, y):
    z = x.sin()
    w = z * 1
    add_(w, 1.0)
    return z, w.cos()


def view_read(x, y):
    z = x.sin()
    row = z[0]
    w = z.clone()
    add_(w, 1.0)
    return (row + w,)


@pytest.mark.parametrize("function", [old_value_read, view_read])
def test_a_value_that_is_still_read_is_kept(function):
    run(function, [X, Y])


def written_gradient(x, y):
    at = torch.tensor([0, 2, 2, 1])
    z = torch.ops.aten.embedding_dense_backward.default(x, at, 5, -1, False)
    add_(z, 1.0)
    return (z * 2,)


def written_sums(x, y):
    z = torch.zeros(4, 3).index_put((torch.tensor([0, 2, 2, 1]),), x, accumulate=True)
    return z, scale_(z, y)


@pytest.mark.parametrize("function", [written_gradient, written_sums])
def test_memory_that_two_kernels_make_is_made_once(function):
    """One kernel fills it, another one adds to it, and then the operator writes."""
    assert len(run(function, [X, Y], codegen="c")) == 1


def one_of_two(x, y):
    z = x.sin()
    w = y[:, :2].t().contiguous().t()
    total, _ = mix_(z[:, :2], w)
    return z, w, total


def test_the_other_operand_is_copied():
    run(one_of_two, [X, Y])


def test_an_operand_is_given_with_others_strides():
    run(written_twice, [X.t().contiguous().t(), Y])
    run(written_input, [torch.ones(8, 3)[::2], Y])


def test_a_refused_rewrite_leaves_the_copy():
    [rewrite] = run(written, [X, Y])
    assert run(written, [X, Y], Veto(rewrites=frozenset({rewrite.id.number}))) == []


Step = tuple[str, int, int]


def program(steps: Sequence[Step], kept: int) -> Callable[..., list[Tensor]]:
    def run_steps(x: Tensor, y: Tensor) -> list[Tensor]:
        pool = [x, y]
        for name, i, j in steps:
            a, b = pool[i % len(pool)], pool[j % len(pool)]
            match name:
                case "sin":
                    pool.append(a.sin())
                case "sum":
                    pool.append(a * 0.5 + b * 0.25)
                case "clone":
                    pool.append(a.clone())
                case "add":
                    add_(a, 0.5)
                case "part":
                    add_(a[1:3], 0.5)
                case "column":
                    add_(a[:, j % 3], 0.5)
                case "clamp":
                    a.clamp_(max=2)
                case "scale" if a is not b:
                    pool.append(pool[-1] + scale_(a, b).tanh())
                case "mix" if a is not b:
                    pool.extend(each.tanh() for each in mix_(a, b))
                case "count" if a is not b:
                    count_([a, b])
                case _:
                    pool.append(a * b)
        return [*pool[2:][:kept], sum(p.sum() for p in pool)]

    return run_steps


NAMES = ["sin", "sum", "clone", "add", "part", "column", "clamp", "scale", "mix", "count"]


@pytest.mark.parametrize("seed", range(12))
def test_random_programs_agree_with_eager(seed):
    draw = random.Random(seed)
    size = draw.randrange(3, 12)
    steps = [(draw.choice(NAMES), draw.randrange(9), draw.randrange(9)) for _ in range(size)]
    x = X.t().contiguous().t() if draw.random() < 0.3 else X
    run(program(steps, draw.randrange(3)), [x, Y], codegen=draw.choice(["c", "eager"]))
