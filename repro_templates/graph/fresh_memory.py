"""Run a program with other contents of fresh memory, as `torch.empty` returns it.

A value that follows the contents is memory that no operator has written. Memory that grows in
`resize_`, and buffers of `out=`, begin as fresh memory as well.

Source: `torch.utils.deterministic.fill_uninitialized_memory`, which has one content, NaN and the
largest integer, and needs deterministic algorithms for all operators. Several contents find memory
that only looks written, and small integers keep indices within their range.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import partial
from typing import Any

import torch
from torch import Tensor

from ctk.compiler.torch_compat.fake.fake_tensors import intercept_ops
from ctk.repro_templates.graph.random_draws import operator_name
from ctk.repro_templates.numbers.plain_parts import PLAIN_CLASSES

CONTENTS: tuple[tuple[float, int], ...] = ((0.0, 0), (-1013.5, 1), (float("nan"), 0))
"""The contents of fresh memory: a float and an integer for each run."""

ALLOCATORS = frozenset({
    "empty", "empty_like", "empty_strided", "empty_permuted", "new_empty", "new_empty_strided",
    "resize", "resize_",
})  # fmt: skip


def filled_memory(
    contents: int, allocated: list[str], only: int | None = None
) -> AbstractContextManager[None]:
    """Return a context in which fresh memory has given contents.

    Args:
        contents: Index in `CONTENTS`.
        allocated: Gets the name of each operator that allocates.
        only: Place of the only allocation that gets them; the others get those of index 0.
    """
    return intercept_ops(partial(_run_filled, contents, allocated, only))


def _run_filled(
    contents: int,
    allocated: list[str],
    only: int | None,
    op: Callable[..., object],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
) -> object:
    name = operator_name(op)
    if name not in ALLOCATORS:
        return op(*args, **kwargs)
    before = args[0].numel() if name.startswith("resize") else 0
    result = op(*args, **kwargs)
    if isinstance(result, Tensor) and type(result) in PLAIN_CLASSES and result.numel() > before:
        index = contents if only in (None, len(allocated)) else 0
        allocated.append(f"torch.{name}" if not name.startswith("resize") else name)
        fill(result, before, *CONTENTS[index])
    return result


def fill(tensor: Tensor, start: int, real: float, integer: int) -> None:
    """Fill the elements of a tensor from `start` on, in memory order."""
    if tensor.layout is not torch.strided or tensor.is_meta or tensor.is_quantized:
        return
    is_float = tensor.is_floating_point() or tensor.is_complex()
    if not start:
        tensor.fill_(real if is_float else integer)
    elif tensor.is_contiguous():
        tensor.view(-1)[start:].fill_(real if is_float else integer)
