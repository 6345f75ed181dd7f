"""`flex_attention` as one kernel in C: eager's values in float64, vetoes, dynamic lengths."""

import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.fx import GraphModule
from torch.nn.attention.flex_attention import BlockMask, flex_attention, noop_mask

import ctk
from ctk import Config
from ctk.toolkit.compile_log.recorder import Recorder
from tests.helpers.flex_programs import PROGRAMS, Flex, alibi, exact, results

PROGRAM = {program.name: program for program in PROGRAMS}
TOLERANCE = {torch.float32: 2e-5, torch.float64: 1e-12, torch.float16: 2e-3, torch.bfloat16: 2e-2}


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    """torch warns in eager that it does not fuse."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "flex_attention called without torch.compile")
        torch.compiler.reset()
        yield


class Vetoing(Recorder):
    """Leaves out every kernel."""

    def allow_kernel(self, kernel: object) -> bool:
        return False


def compiled(call: Callable, recorder: Recorder, **options: Any) -> Callable:
    def backend(gm: GraphModule, inputs: list) -> Callable:
        return ctk.compile_fx(gm, inputs, Config(codegen="c", fallback=()), recorder)

    return torch.compile(call, backend=backend, fullgraph=True, **options)


def sources(recorder: Recorder) -> list[str]:
    kernels = [record for record in recorder.log.kernels() if record.source is not None]
    return [record.source or "" for record in kernels if "block_product" in (record.source or "")]


def check(program: Flex, dtype: torch.dtype = torch.float32) -> Recorder:
    inputs, recorder = program.inputs(dtype), Recorder()
    found = results(compiled(program.call(), recorder)(*inputs))
    for mine, expected in zip(found, exact(program, inputs), strict=True):
        close = TOLERANCE[dtype if mine.dtype == dtype else torch.float32]
        torch.testing.assert_close(mine.double(), expected.double(), rtol=close, atol=close)
    assert len(sources(recorder)) == 1
    return recorder


@pytest.mark.parametrize("name", PROGRAM)
def test_values(name: str) -> None:
    check(PROGRAM[name])


@pytest.mark.parametrize("dtype", [torch.float64, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("name", ["alibi_causal", "grouped", "empty_rows", "cross"])
def test_types(name: str, dtype: torch.dtype) -> None:
    check(PROGRAM[name], dtype)


def test_a_vetoed_kernel_runs_in_eager() -> None:
    program = PROGRAM["alibi_causal"]
    inputs, recorder = program.inputs(), Vetoing()
    found = compiled(program.call(), recorder)(*inputs)
    torch.testing.assert_close(found, program.call()(*inputs))
    assert not sources(recorder)


def test_only_the_logarithms_are_used() -> None:
    """Values are not read."""
    program, recorder = PROGRAM["logarithms"], Recorder()
    q, k, v = program.inputs()
    expected = exact(program, [q, k, v])[1]
    for values in (v, v.mT.contiguous().mT, v.bfloat16()):
        call = compiled(lambda *x: program.call()(*x)[1].lse, recorder)
        given = (q, k, values) if values.dtype == q.dtype else (q.bfloat16(), k.bfloat16(), values)
        close = TOLERANCE[given[0].dtype]
        torch.testing.assert_close(call(*given).double(), expected, rtol=close, atol=close)


def test_lengths_that_vary() -> None:
    """One compile serves all lengths."""
    slopes, recorder = torch.rand(4), Recorder()

    def call(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return flex_attention(q, k, v, alibi(slopes))

    run = compiled(call, recorder, dynamic=True)
    for length in (70, 129, 200):
        q, k, v = (torch.randn(2, 4, length, 16) for _ in range(3))
        expected = flex_attention(q.double(), k.double(), v.double(), alibi(slopes.double()))
        torch.testing.assert_close(run(q, k, v).double(), expected, rtol=1e-5, atol=1e-5)
    assert len(sources(recorder)) == 1


def test_listed_blocks_decide() -> None:
    """The lists of a block mask count, as in torch's own kernels; eager ignores them."""
    counts, blocks = torch.ones(1, 1, 2, dtype=torch.int32), torch.zeros(1, 1, 2, 2)
    mask = BlockMask.from_kv_blocks(counts, blocks.int(), BLOCK_SIZE=128, mask_mod=noop_mask)
    q, k, v = (torch.randn(1, 2, 256, 16) for _ in range(3))
    recorder = Recorder()
    found = compiled(lambda *x: flex_attention(*x, block_mask=mask), recorder)(q, k, v)
    expected = flex_attention(q, k[:, :, :128], v[:, :, :128])
    torch.testing.assert_close(found, expected)


def test_a_position_out_of_range_raises() -> None:
    table, index = torch.randn(50), torch.arange(130)

    def call(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return flex_attention(q, k, v, lambda s, b, h, i, j: s + table[index[i]])

    run = compiled(call, Recorder())
    with pytest.raises(IndexError, match="flex_attention"):
        run(*PROGRAM["plain"].inputs())


def test_a_function_without_lowering_runs_in_eager() -> None:
    table = torch.randn(4, 8)

    def call(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return flex_attention(q, k, v, lambda s, b, h, i, j: s + table[h].sum())

    recorder = Recorder()
    inputs = PROGRAM["plain"].inputs()
    torch.testing.assert_close(compiled(call, recorder)(*inputs), call(*inputs))
    assert not sources(recorder)


def test_transposed_queries_give_the_strides_of_eager() -> None:
    program = PROGRAM["transposed"]
    inputs = program.inputs()
    run = compiled(lambda *x: flex_attention(*x, block_mask=program.block_mask()), Recorder())
    assert run(*inputs).stride() == program.call()(*inputs).stride()


def test_no_keys_for_any_query_gives_zeros() -> None:
    inputs, recorder = PROGRAM["empty_rows"].inputs(), Recorder()
    found, aux = compiled(PROGRAM["empty_rows"].call(), recorder)(*inputs)
    assert not found[:, :, :61].any()
    assert torch.isneginf(aux.lse[:, :, :61]).all()


def test_not_a_number_stays() -> None:
    q, k, v = PROGRAM["causal"].inputs()
    k[0, 0, 5, 3] = float("nan")
    found = compiled(PROGRAM["causal"].call(), Recorder())(q, k, v)
    expected = PROGRAM["causal"].call()(q, k, v)
    torch.testing.assert_close(found, expected, equal_nan=True, rtol=1e-5, atol=1e-5)
