"""Autograd's bookkeeping: the version counters of tensors, and hooks on saved tensors."""

# pyright: reportPrivateUsage=false, reportAttributeAccessIssue=false

import contextlib
import traceback
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any

import torch
from torch import Tensor


def remember_versions(tensors: Sequence[Tensor]) -> Callable[[], None]:
    """Return a function that restores the present version counters of tensors.

    Call it when the tensors have their present values again: a tensor that autograd saved is then
    valid in its backward pass. Inference tensors have no version counters.
    """
    counted = tuple(tensor for tensor in tensors if not tensor.is_inference())
    kept = torch.autograd._unsafe_preserve_version_counter(counted)
    return lambda: kept.__exit__(None, None, None)


def without_saved_tensor_hooks() -> AbstractContextManager[None]:
    """Hide tensors saved in a `with` block from the program's `saved_tensors_hooks`.

    autograd calls only the innermost hooks, so idle hooks are pushed on top of any.
    """
    if torch._C._autograd._top_saved_tensors_default_hooks(True) is None:
        return contextlib.nullcontext()
    return torch.autograd.graph.saved_tensors_hooks(_same, _same)


def is_from_saved_tensor_hook(error: BaseException) -> bool:
    """Return whether the program's innermost hook on saved tensors raised the error.

    That is the program at work, not a failure of who was called: `torch.utils.checkpoint` leaves a
    recomputation so, once all is saved that its backward pass needs.
    """
    hooks = torch._C._autograd._top_saved_tensors_default_hooks(True)
    if hooks is None:
        return False
    callables = [each for hook in hooks for each in (hook, type(hook).__call__)]
    codes = {code for each in callables if (code := getattr(each, "__code__", None)) is not None}
    frames = traceback.walk_tb(error.__traceback__)
    return any(frame.f_code in codes for frame, _ in frames)


def is_recomputing() -> bool:
    """Return whether a forward operator runs within a backward pass, as in a checkpoint."""
    return torch._C._current_graph_task_id() != -1 and torch.is_grad_enabled()


def is_in_compiled_autograd() -> bool:
    """Return whether compiled autograd compiles or runs a backward pass that it has captured."""
    return bool(torch._dynamo.compiled_autograd.in_compiled_autograd_region)


def _same(value: Tensor) -> Tensor:
    return value


def without_modes(function: Callable[[list[Any]], Any], values: list[Any]) -> Any:
    """Call a function without gradients and autocast: compiled code has its casts already."""
    if torch._C._is_any_autocast_enabled():
        with torch.no_grad(), torch._C._DisableAutocast():
            return function(values)
    before = torch.is_grad_enabled()  # quicker than a context: a call may take microseconds
    torch.set_grad_enabled(False)
    try:
        return function(values)
    finally:
        torch.set_grad_enabled(before)
