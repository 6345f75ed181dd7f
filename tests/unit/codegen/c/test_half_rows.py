"""Conversions of float16 a piece of a row at a time."""

from collections.abc import Callable

import torch
from torch import Tensor
from torch.fx.experimental.proxy_tensor import make_fx
from torch.nn import functional as F

from ctk.compiler.codegen.c.half_rows import PIECE, ROW
from ctk.compiler.codegen.c.kernel_printer import kernel_code
from ctk.compiler.lowering.fuse import fuse
from ctk.compiler.lowering.ir import Kernel
from ctk.compiler.lowering.lower import lower
from tests.helpers.c_kernels import run_as_c

GENERATOR = torch.Generator().manual_seed(5)


def drawn(*shape: int) -> Tensor:
    return torch.randn(*shape, generator=GENERATOR).half()


def printed(function: Callable[..., Tensor], *inputs: Tensor, check_bounds: bool = False) -> str:
    program = fuse(lower(make_fx(function, tracing_mode="fake")(*inputs)), lambda *_: True)
    kernels = [step for step in program.steps if isinstance(step, Kernel)]
    codes = [
        kernel_code(kernel, program.buffers, name="kernel", check_bounds=check_bounds)
        for kernel in kernels
    ]
    return "\n".join(code.text for code in codes)


def several(x: Tensor, y: Tensor, w: Tensor) -> tuple[Tensor, ...]:
    norm = F.layer_norm(x * y, x.shape[1:], w, w)
    sums = (x * y).sum(0), (x * y).sum(1), x.amax(1)
    joined = torch.cat((x + 1, y * w), 1), F.pad(x * 2, (3, 5))
    moved = x.flip(1) + y, x.t() * 2, x[:, 1:] + y[:, :-1], x[:, ::2] * 3, x.roll(1, 1) * y
    return norm, torch.softmax(x + y, 1), *sums, *joined, *moved, torch.where(x > 0, y, w * x)


def test_kernels_compute_what_eager_computes_on_whole_rows_pieces_and_rests() -> None:
    for rows, width in ((3, 15), (5, PIECE + 1), (2, ROW + 2), (40, 35)):
        inputs = drawn(rows, width), drawn(rows, width), drawn(width)
        for one, other in zip(run_as_c(several, *inputs), several(*inputs), strict=True):
            torch.testing.assert_close(one, other, rtol=4e-3, atol=4e-3)


def test_each_number_is_converted_as_in_eager() -> None:
    halves = torch.arange(1 << 16).to(torch.int16).view(torch.float16)
    steps = torch.tensor([0, 1, 0xFFF, 0x1000, 0x1001])[:, None]  # between two halves
    singles = (halves.float().view(torch.int32) + steps).to(torch.int32).view(torch.float32)

    def converted(halves: Tensor, singles: Tensor) -> tuple[Tensor, Tensor]:
        return halves.float(), singles.half()

    for one, other in zip(
        run_as_c(converted, halves, singles), converted(halves, singles), strict=True
    ):
        assert torch.equal(one.isnan(), other.isnan())
        integer = torch.int16 if one.dtype == torch.float16 else torch.int32
        same = one.nan_to_num(7, torch.inf, -torch.inf).view(integer)
        assert torch.equal(same, other.nan_to_num(7, torch.inf, -torch.inf).view(integer))


def test_a_row_is_converted_once_and_a_weight_before_all_rows() -> None:
    text = printed(lambda x: torch.softmax(x, 1), drawn(8, 64))
    assert text.count("widen_f16(") == text.count("narrow_f16(") == 1
    text = printed(lambda x, w: x * w, drawn(8, 64), drawn(64))
    assert text.index("&w_1[0], 64") < text.index("for (int64_t i0")
    assert "f32_of_f16(" not in text


def test_loads_that_jump_or_are_checked_convert_one_by_one() -> None:
    x = drawn(40, 64)
    for text in (printed(lambda x: x[:, ::2] + 1.0, x), printed(torch.abs, x, check_bounds=True)):
        assert "f32_of_f16(" in text
        assert "widen_f16(" not in text


def test_kept_rows_are_seen_behind_the_blocks_of_a_sum() -> None:
    x = torch.randn(2, 5000, generator=GENERATOR)  # two blocks, one row of the cache
    (found,) = run_as_c(lambda x: torch.softmax(x, 1), x)
    torch.testing.assert_close(found, torch.softmax(x, 1))


def test_a_kept_row_is_read_in_blocks_of_a_sum() -> None:
    x = drawn(3, 5000)
    (found,) = run_as_c(lambda x: torch.softmax(x, 1), x)
    torch.testing.assert_close(found, torch.softmax(x, 1), rtol=2e-3, atol=1e-6)
    (found,) = run_as_c(lambda x: x.float().logsumexp(1), x)
    torch.testing.assert_close(found, x.float().logsumexp(1))
