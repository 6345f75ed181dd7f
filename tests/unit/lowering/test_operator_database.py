"""Torch's database of operators, in the reference interpreter and as kernels in C, next to eager.

Forward and backward, in four types. What differs from eager must be as near to what float64 gives
as eager is. Prints how many operators are kernels only (`pytest -s`).
"""

from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.helpers.lowered import Lowered, assert_close, captured, clone_of, results_of
from tests.helpers.torch_samples import flat_call, operator_infos

SHARDS = 4
SAMPLES = 3
UNDETERMINED = frozenset((
    "empty", "empty_like", "empty_permuted", "empty_strided", "new_empty", "new_empty_strided"
))  # fmt: skip
TORCHS_OWN = frozenset((
    "_batch_norm_with_update", "nn.functional.embedding_bag", "ormqr", "tensordot",
))  # fmt: skip
"""The recorded type, sizes or strides of a library call are not what the call gives."""

Sample = tuple[Callable[..., Any], tuple[Tensor, ...]]


def samples(info: Any, dtype: torch.dtype) -> Iterator[Sample]:
    wants = bool(info.supports_autograd and dtype in info.supported_backward_dtypes("cpu"))
    torch.manual_seed(0)
    try:
        for sample in islice(info.sample_inputs("cpu", dtype, requires_grad=wants), SAMPLES):
            yield flat_call(info.op, sample)
    except (RuntimeError, ModuleNotFoundError, AssertionError):
        return  # the database has none on this machine


def eager_results(call: Callable[..., Any], inputs: Any) -> list[Any] | None:
    """Return what eager gives, None where it raises; draws begin as the database has them begin."""
    torch.manual_seed(42)
    try:
        return results_of(call, inputs)
    except (RuntimeError, ValueError, TypeError, IndexError, NotImplementedError, AssertionError):
        return None


def compiled(lowered: Lowered, call: Callable[..., Any], inputs: Any) -> Callable[..., Any] | None:
    """Return the lowered call; None where AOTAutograd cannot trace it."""
    try:
        return lowered.compile(captured(call, len(inputs)), [clone_of(each) for each in inputs])
    except Exception as error:
        parts, at = [], error.__traceback__
        while at is not None:
            parts.append(at.tb_frame.f_code.co_filename)
            at = at.tb_next
        ours = ("compiler/lowering", "compiler/codegen")
        if any(room in part for part in parts for room in ours):
            raise
        return None


def wide(value: Any) -> Any:
    """Return a float as a float64."""
    if not isinstance(value, Tensor) or not value.is_floating_point():
        return value
    return value.detach().double().requires_grad_(value.requires_grad)


def is_as_good(mine: list[Any], eager: list[Any], sample: Sample) -> bool:
    """Return whether results are as near to those of float64 as eager's are."""
    call, inputs = sample
    exact = eager_results(call, [wide(each) for each in inputs])
    if exact is None or len(exact) != len(mine) or len(mine) != len(eager):
        return False
    for own, theirs, true in zip(mine, eager, exact, strict=True):
        if own is None or theirs is None:
            if own is not theirs:
                return False
            continue
        if own.stride() != theirs.stride() and own.numel():
            return False
        try:
            assert_close(own, theirs)
        except AssertionError:
            error = (theirs.double() - true.double()).abs().nan_to_num().max()
            limit = 2 * error + torch.finfo(own.dtype).eps * true.double().abs().max()
            if own.dtype != theirs.dtype or (own.double() - true.double()).abs().max() > limit:
                return False
    return True


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # the database calls what is deprecated, or in beta
@pytest.mark.parametrize("shard", range(SHARDS))
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int64, torch.bool], ids=str)
@pytest.mark.parametrize("codegen", ["", "c"], ids=["interpreter", "c"])
def test_operators_compute_what_eager_does(codegen: str, dtype: torch.dtype, shard: int) -> None:
    wrong: list[str] = []
    kernels: set[str] = set()
    library: set[str] = set()
    infos = sorted(operator_infos(), key=lambda info: (info.name, info.variant_test_name))
    for info in infos[shard::SHARDS]:
        name = f"{info.name}.{info.variant_test_name}".rstrip(".")
        skipped = name in UNDETERMINED or name in TORCHS_OWN
        if skipped or not info.supports_dtype(dtype, "cpu"):
            continue
        for number, (call, inputs) in enumerate(samples(info, dtype)):
            lowered = Lowered(codegen)
            expected = eager_results(call, inputs)
            run = compiled(lowered, call, inputs) if expected is not None else None
            if run is None or expected is None:
                continue
            torch.manual_seed(42)
            found = results_of(run, inputs)
            (library if lowered.operators else kernels).add(name)
            if not is_as_good(found, expected, (call, inputs)):
                wrong.append(f"{name}[{number}] {sorted(lowered.operators)}")
    print(
        f"{dtype}: {len(kernels - library)} operators are kernels, {len(library)} call the library"
    )
    assert not wrong, "\n".join(wrong)
