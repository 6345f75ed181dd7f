"""Parts of a result are written by the kernels that make them."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.fx.experimental.proxy_tensor import make_fx
from torch.nn import functional as F

from ctk.compiler.lowering.fuse import fuse
from ctk.compiler.lowering.interpret import run_program
from ctk.compiler.lowering.ir import Kernel, Program
from ctk.compiler.lowering.lower import lower
from ctk.compiler.lowering.memory import plan_memory
from ctk.compiler.lowering.parts import in_parts, parts_of
from tests.helpers.lowered import compare

X = torch.randn(6, 8, generator=torch.Generator().manual_seed(5))
Y = torch.randn(6, 8, generator=torch.Generator().manual_seed(6))


def rotated(x: Tensor, y: Tensor) -> Tensor:
    one, two = x.chunk(2, -1)
    c, s = y.chunk(2, -1)
    return torch.cat((one * c - two * s, two * c + one * s), -1)


def softmaxes(x: Tensor, y: Tensor) -> Tensor:
    return torch.cat((x.softmax(1), y.softmax(1)), 1)


def in_rows(x: Tensor, y: Tensor) -> Tensor:
    return torch.cat((x.softmax(1), y[:3].softmax(1)), 0)


def with_a_product(x: Tensor, y: Tensor) -> Tensor:
    return torch.cat((x @ y.t(), (x - y).softmax(1)), 1)


def stacked(x: Tensor, y: Tensor) -> Tensor:
    return torch.stack((x.softmax(1), y.softmax(1), x), 1)


def padded(x: Tensor, y: Tensor) -> Tensor:
    return F.pad(x.softmax(1), (1, 2, 1, 0), value=3.0)


def in_a_slice(x: Tensor, y: Tensor) -> Tensor:
    return x.slice_scatter(y[:, :3].softmax(1), 1, 2, 5)


def in_a_row(x: Tensor, y: Tensor) -> Tensor:
    return x.select_scatter(y[0].softmax(0), 0, 4)


def over_each_other(x: Tensor, y: Tensor) -> Tensor:
    first = x.slice_scatter(y[:, :4].softmax(1), 1, 0, 4)
    return first.slice_scatter(y[:, 4:].softmax(1), 1, 2, 6)


def read_again(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    both = torch.cat((x.softmax(1), y.softmax(1)), 1)
    return both, both @ both.t()


def read_by_others(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    first = x.softmax(1)
    return torch.cat((first, y), 1), first @ y.t()


def one_in_another(x: Tensor, y: Tensor) -> Tensor:
    first = torch.cat((x.softmax(1), y), 1)
    return torch.cat((first, y.softmax(1)), 1)


def needed_between(x: Tensor, y: Tensor) -> Tensor:
    first = x.softmax(1)
    return torch.cat((first, (first @ y.t()).softmax(1)), 1)


def narrow(x: Tensor, y: Tensor) -> Tensor:
    return torch.cat((x.softmax(1).bfloat16(), y.bfloat16()), 1)


def every_second(x: Tensor, y: Tensor) -> Tensor:
    return x.slice_scatter(y[:, :4].softmax(1), 1, 0, 8, 2)


WRITTEN: dict[Callable[[Tensor, Tensor], object], set[str]] = {
    rotated: {"cat"},
    softmaxes: {"cat"},
    in_rows: {"cat"},
    with_a_product: {"cat"},
    stacked: {"stack"},
    padded: {"constant_pad_nd"},
    in_a_slice: {"slice_scatter"},
    in_a_row: {"select_scatter"},
    read_again: {"cat"},
    read_by_others: {"cat", "_softmax"},
    one_in_another: {"cat_1"},
    needed_between: {"cat", "_softmax"},
    narrow: {"cat"},
}
"""The buffers that kernels write. A part with a reader besides is memory of its own."""

OTHERS = (over_each_other, every_second)
"""Parts that no loop variable separates."""


def fused(call: Callable[[Tensor, Tensor], object], allow: Callable[..., bool]) -> Program:
    return fuse(lower(make_fx(call, tracing_mode="fake")(X, Y)), allow)


def kernels_of(program: Program) -> list[Kernel]:
    return [step for step in program.steps if isinstance(step, Kernel)]


@pytest.mark.parametrize("call", WRITTEN, ids=lambda call: call.__name__)
def test_no_part_has_memory_of_its_own(call: Callable[[Tensor, Tensor], object]) -> None:
    kernels = kernels_of(fused(call, lambda *_: True))
    written = {store.buffer for kernel in kernels for store in kernel.stores}
    assert written == WRITTEN[call]


@pytest.mark.parametrize("call", [*WRITTEN, *OTHERS], ids=lambda call: call.__name__)
def test_results_are_those_of_eager(call: Callable[[Tensor, Tensor], object]) -> None:
    gm = make_fx(call, tracing_mode="fake")(X, Y)
    program = plan_memory(fuse(lower(gm), lambda *_: True), lambda *_: True)
    torch.testing.assert_close(run_program(gm, program, [X, Y], check=True), call(X, Y))


def test_kernels_in_c_write_them() -> None:
    compare(lambda x, y: [call(x, y) for call in (*WRITTEN, *OTHERS)], X, Y, codegen="c")


def test_sizes_may_be_known_at_the_call_only() -> None:
    gm = make_fx(softmaxes, tracing_mode="symbolic")(X, Y)
    program = fuse(lower(gm), lambda *_: True)
    assert {s.buffer for kernel in kernels_of(program) for s in kernel.stores} == {"cat"}
    found = run_program(gm, program, [X[:, :5], Y[:, :5]], check=True)
    torch.testing.assert_close(found, softmaxes(X[:, :5], Y[:, :5]))


def test_parts_are_a_rewrite_of_their_own() -> None:
    """Vetoed, the result is one kernel that copies."""
    asked: list[str] = []

    def allow(rule: str, _: object) -> bool:
        asked.append(rule)
        return not rule.startswith("in parts")

    kernels = kernels_of(fused(softmaxes, allow))
    assert "in parts cat" in asked
    assert [kernel.name for kernel in kernels] == ["_softmax", "_softmax_1", "cat"]


@pytest.mark.parametrize("call", OTHERS, ids=lambda call: call.__name__)
def test_parts_that_may_overlap_stay_together(call: Callable[[Tensor, Tensor], object]) -> None:
    program = fused(call, lambda rule, _: not rule.startswith("in parts"))
    assert not any(parts_of(kernel) for kernel in kernels_of(program))


def test_no_part_has_loops_of_negative_size() -> None:
    """The slice of a pad keeps no element of `x`."""

    def cut_off(x: Tensor, _: Tensor) -> Tensor:
        return F.pad(F.pad(x.sin(), (5, 7))[:, :4], (2, 3))

    program = fused(cut_off, lambda rule, _: not rule.startswith("in parts"))
    made = [part for kernel in kernels_of(program) for part in in_parts(kernel)]
    assert all((loop.size.number or 0) >= 0 for part in made for loop in part.outer)
