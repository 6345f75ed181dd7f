"""Fusion: what is one kernel computes what the kernels computed before."""

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.fx.experimental.proxy_tensor import make_fx

from ctk.compiler.codegen.select import generate
from ctk.compiler.lowering.fuse import fuse
from ctk.compiler.lowering.interpret import run_program
from ctk.compiler.lowering.ir import Kernel
from ctk.compiler.lowering.lower import lower
from ctk.compiler.lowering.memory import plan_memory
from ctk.compiler.options.config import Config
from ctk.compiler.rewriting.numbering import Numbering
from tests.helpers.lowered import compare

SQUARE = torch.randn(40, 80, generator=torch.Generator().manual_seed(3))

CALLS: dict[str, Callable[[Tensor], Sequence[Tensor]]] = {
    "scan beside a sum": lambda x: (x.sum(1), x.cumsum(1)),
    "sum beside a scan": lambda x: (x.cumsum(1), x.amax(1), x.softmax(1)),
    "scan of what is walked crosswise": lambda x: (x.t().sum(), x.flatten().cumsum(0)),
    "variance of what is chosen": lambda x: (
        torch.where(x > 0, x, x[:1] * 8).var(),
        torch.cat([x, x * 2], 1).var(1),
    ),
    "place in what is walked crosswise": lambda x: (x.t().sum(), x.argmax(), x.argmin(0)),
}


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS.keys())
def test_fused_kernels_compute_what_eager_does(
    call: Callable[[Tensor], Sequence[Tensor]],
) -> None:
    gm = make_fx(call, tracing_mode="fake")(SQUARE)
    fused = fuse(lower(gm), lambda *_: True)
    assert_same(run_program(gm, fused, [SQUARE], check=True), call(SQUARE))
    as_c = generate(gm, [SQUARE], "forward", Numbering(config=Config(codegen="c", fallback=())))
    assert_same(as_c([SQUARE]), call(SQUARE))


def assert_same(found: Sequence[Any], wanted: Sequence[Tensor]) -> None:
    for mine, eager in zip(found, wanted, strict=True):
        torch.testing.assert_close(mine, eager, rtol=1e-5, atol=1e-4)


def renewed(x: Tensor, y: Tensor) -> Tensor:
    torch.ops.aten.copy_.default(x, y[0] * 2)
    return x * 3


def part_renewed(x: Tensor, y: Tensor) -> Tensor:
    torch.ops.aten.copy_.default(x[:2], y * 2)
    return x * 3


def parts_of_a_result_renewed(x: Tensor, y: Tensor) -> Tensor:
    made = x * 2
    torch.ops.aten.copy_.default(made[2:4], y)
    torch.ops.aten.copy_.default(made[:2], made[1:3] * 2)
    return made.exp()


@pytest.mark.parametrize("call", [renewed, part_renewed, parts_of_a_result_renewed])
def test_what_is_written_stays_written(call: Callable[[Tensor, Tensor], Tensor]) -> None:
    """A kernel that writes into memory of others, or a part of it, is not computed elsewhere."""
    x, y = SQUARE[:6, :8].contiguous(), SQUARE[6:8, :8].contiguous()
    gm = make_fx(call, tracing_mode="fake")(x, y)
    program = plan_memory(fuse(lower(gm), lambda *_: True), lambda *_: True)
    mine, eager = (x.clone(), y), (x.clone(), y)
    assert_same([run_program(gm, program, mine, check=True), *mine], [call(*eager), *eager])


def bits(x: Tensor, y: Tensor) -> None:
    y.copy_(x.view(torch.int32) + 1)
    x.mul_(2)


def bits_before_a_write(x: Tensor, y: Tensor) -> None:
    found = x.view(torch.int32) + 1
    x.mul_(2)
    y.copy_(found)


def bits_of_other_rows(x: Tensor, _: Tensor) -> Tensor:
    found = x.view(torch.int32).flip(0) + x.int()
    x.add_(1)
    return found


def parts_of_complex_numbers(x: Tensor, y: Tensor) -> None:
    numbers = torch.view_as_complex(x.view(4, 2, 2))
    total = torch.view_as_real(numbers).sum(-1)
    x.mul_(2)
    y[:, :2].copy_(total + 1)


@pytest.mark.parametrize(
    "call", [bits, bits_before_a_write, bits_of_other_rows, parts_of_complex_numbers]
)
def test_memory_with_two_names_is_read_before_it_is_written(
    call: Callable[[Tensor, Tensor], Tensor | None],
) -> None:
    """A view of other elements is the library's; the write behind it stays behind its reader."""
    compare(call, SQUARE[:4, :4].contiguous(), torch.zeros(4, 4, dtype=torch.int32), codegen="c")


def adds(x: Tensor, y: Tensor) -> None:
    x.add_(1)
    y.add_(x)


def momentum(x: Tensor, y: Tensor) -> None:
    y.mul_(0.9).add_(x)
    x.sub_(x + y * 0.9, alpha=0.1)


def both_ways(x: Tensor, y: Tensor) -> None:
    old = x.clone()
    x.add_(y)
    y.mul_(old)


@pytest.mark.parametrize("call", [adds, momentum, both_ways])
def test_two_inputs_that_are_written_and_read(call: Callable[[Tensor, Tensor], None]) -> None:
    """What reads an input runs before what writes it, in one kernel, too."""
    compare(call, SQUARE[:4, :4].contiguous(), SQUARE[4:8, :4].contiguous(), codegen="c")


def masked_rows(x: Tensor, y: Tensor, mask: Tensor) -> Sequence[Tensor]:
    kept = torch.where(mask > 0, 0.0, -1e9).exp()  # for all heads, and for both
    first, second = (torch.softmax(each + kept, -1) for each in (x, y))
    return first, second, first.mul(y).sum(-1)


def test_a_mask_for_all_heads_does_not_turn_the_loops_of_rows() -> None:
    sizes = ((2, 8, 48, 48), (2, 8, 48, 48), (2, 1, 48, 48))
    inputs = [torch.randn(size, generator=torch.Generator().manual_seed(5)) for size in sizes]
    gm = make_fx(masked_rows, tracing_mode="fake")(*inputs)
    fused = fuse(lower(gm), lambda *_: True)
    kernels = [step for step in fused.steps if isinstance(step, Kernel)]
    assert sorted(len(kernel.stores) for kernel in kernels) == [1, 3]  # the mask, and rows
    assert_same(run_program(gm, fused, inputs, check=True), masked_rows(*inputs))


def halves(x: Tensor, dim: int) -> list[Tensor]:
    one, two = x.chunk(2, dim)
    return [one.sin(), two.cos() + 1]


PARTS: dict[str, tuple[Callable[[Tensor], Sequence[Tensor]], int]] = {
    "halves of rows": (lambda x: halves(x, 1), 1),
    "halves of all rows": (lambda x: halves(x, 0), 1),
    "rows far apart": (lambda x: [x[0].sin(), x[-1].cos()], 1),
    "neighbours": (lambda x: [x[1:].sin(), x[:-1].cos()], 1),
    "every other row": (lambda x: [x[::2].sin(), x[1::2].sum(1)], 1),
    "rows of other lengths": (lambda x: [x[:, :30].sin(), x[:, 30:].cos()], 2),
    "rows and columns": (lambda x: [x[:40, :40].sin(), x[:40, 40:].t().cos()], 1),
    "nothing in common": (lambda x: [(x @ x.t()).sin(), (x @ x.t() + 1).cos()], 2),
}


@pytest.mark.parametrize("name", PARTS)
def test_kernels_of_parts_of_one_buffer_become_one(name: str) -> None:
    call, count = PARTS[name]
    gm = make_fx(call, tracing_mode="fake")(SQUARE)
    fused = fuse(lower(gm), lambda *_: True)
    assert sum(isinstance(step, Kernel) for step in fused.steps) == count
    assert_same(run_program(gm, fused, [SQUARE], check=True), call(SQUARE))


def shifted(x: Tensor) -> Tensor:
    torch.ops.aten.copy_.default(x[:20], x[20:].sin())
    return x[20:] + 1


def swapped(x: Tensor) -> Tensor:
    one, two = x[:20] * 2, x[20:].cos()
    torch.ops.aten.copy_.default(x[:20], two)
    torch.ops.aten.copy_.default(x[20:], one)
    return one + two


def one_then_other(x: Tensor) -> Tensor:
    torch.ops.aten.copy_.default(x[:20], x[:20] + 1)
    result = x[20:].sin()
    torch.ops.aten.copy_.default(x[20:], x[:20] * 3)
    return result


@pytest.mark.parametrize("call", [shifted, swapped, one_then_other])
def test_parts_that_are_written_are_read_before(call: Callable[[Tensor], Tensor]) -> None:
    mine, wanted = SQUARE.clone(), SQUARE.clone()
    gm = make_fx(call, tracing_mode="fake")(mine)
    program = plan_memory(fuse(lower(gm), lambda *_: True), lambda *_: True)
    assert_same([run_program(gm, program, [mine], check=True), mine], [call(wanted), wanted])
