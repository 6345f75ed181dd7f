"""Restore state of torch in this thread that a graph may leave set: when it raises, or is cut.

Dynamo writes `vmap`, `jvp` and their siblings as calls that enter and leave, in one line of nodes:

    _vmap_increment_nesting = torch._functorch.predispatch._vmap_increment_nesting(3, 'error')
    cholesky = torch._C._linalg.linalg_cholesky(batched)          raises: the level stays entered
    _vmap_decrement_nesting = torch._functorch.predispatch._vmap_decrement_nesting()

From then on every operator of the process would meet that level ("Batching rule not implemented
for aten::equal"). Restored: levels of functorch, the level and the switch of forward-mode
differentiation, the permission of hooks on saved tensors, the kernels of attention, dispatch keys
of Python, inference mode (when the body raises). Grad mode, autocast, determinism and the default
dtype are the modes of a case instead.
"""

# pyright: reportPrivateUsage=false, reportAttributeAccessIssue=false

import contextlib
import traceback
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import AbstractContextManager
from functools import cache
from types import FrameType
from typing import Any

import torch
from torch.autograd import forward_ad


@cache
def _switches() -> tuple[tuple[Callable[[], bool], Callable[[bool], object]], ...]:
    """Return how to read and how to set each switch."""
    functorch = torch._C._functorch
    return (
        (torch._C._is_fwd_grad_enabled, torch._C._set_fwd_grad_enabled),
        (
            functorch.get_inplace_requires_grad_allowed,
            functorch.set_inplace_requires_grad_allowed,
        ),
        (
            functorch.get_single_level_autograd_function_allowed,
            functorch.set_single_level_autograd_function_allowed,
        ),
        (torch._C._get_flash_sdp_enabled, torch._C._set_sdp_use_flash),
        (torch._C._get_math_sdp_enabled, torch._C._set_sdp_use_math),
        (torch._C._get_mem_efficient_sdp_enabled, torch._C._set_sdp_use_mem_efficient),
        (torch._C._get_cudnn_sdp_enabled, torch._C._set_sdp_use_cudnn),
        (torch._C._get_overrideable_sdp_enabled, torch._C._set_sdp_use_overrideable),
    )


@cache
def _leaving() -> Mapping[object, Callable[[], object]]:
    """Return the function that leaves a level, by the kind of its transform."""
    functorch = torch._C._functorch
    kinds = functorch.TransformType
    return {
        kinds.Vmap: functorch._vmap_decrement_nesting,
        kinds.Grad: functorch._grad_decrement_nesting,
        kinds.Jvp: functorch._jvp_decrement_nesting,
        kinds.Functionalize: functorch._func_decrement_nesting,
    }


@cache
def _keys() -> tuple[Any, ...]:
    """Return the dispatch keys that a late end of inference mode sets as within a trace.

    From then on torch 2.11 raises an internal error for every operator.
    """
    keys = torch._C.DispatchKey
    return keys.Python, keys.PythonTLSSnapshot, keys.PythonDispatcher


@contextlib.contextmanager
def process_state_kept() -> Generator[None]:
    """Run the body, then leave every transform that it left on, and put its switches back.

    In torch: Dynamo leaves the levels of a frame that raised in this way.

    Raises:
        RuntimeError: The body has entered a transform and not left it: its results mean nothing.
    """
    levels = torch._C._functorch.get_dynamic_layer_stack_depth()
    switches = [(get(), put) for get, put in _switches()]
    hooks = torch._C._autograd._saved_tensors_hooks_is_enabled()
    inference = torch.is_inference_mode_enabled()
    keys = [(key, torch._C._dispatch_tls_is_dispatch_key_included(key)) for key in _keys()]
    try:
        yield
        if torch._C._functorch.get_dynamic_layer_stack_depth() > levels:
            raise RuntimeError("a transform of functorch was entered, and not left")
    except BaseException as error:
        _leave_levels(levels)
        _leave_dual_level()
        if torch.is_inference_mode_enabled() != inference:
            _leave_inference_mode(error)
        raise
    finally:
        for before, put in switches:
            put(before)
        if hooks and not torch._C._autograd._saved_tensors_hooks_is_enabled():
            torch._C._autograd._saved_tensors_hooks_enable()
        for key, is_included in keys:
            torch._C._dispatch_tls_set_dispatch_key_included(key, is_included)


def _leave_levels(depth: int) -> None:
    """Leave levels of functorch until `depth` remain, the innermost first.

    torch has one function for this, `pop_dynamic_layer_stack_and_undo_to_depth`; that of 2.11 takes
    two levels off the stack for each that it undoes, and fails.
    """
    while torch._C._functorch.get_dynamic_layer_stack_depth() > depth:
        _leaving()[torch._C._functorch.peek_interpreter_stack().key()]()


def _leave_dual_level() -> None:
    """Leave the one level of forward-mode differentiation, if the body has left it entered."""
    if forward_ad._current_level < 0:  # else the caller has entered it
        with contextlib.suppress(RuntimeError):  # torch's answer when there is none
            torch._C._exit_dual_level(level=0)


def _leave_inference_mode(error: BaseException) -> None:
    """Leave the regions that a graph entered before it raised.

    In torch: the node `_enter_inference_mode` gives a guard, which leaves the
    region when it is freed: with the traceback, much later, and grad mode goes with it.
    """
    guards = [each for frame in _frames_of(error) for each in _guards_in(frame)]
    for guard in reversed(guards):  # the innermost frame entered last
        guard.__exit__(None, None, None)


def _frames_of(error: BaseException) -> Iterator[FrameType]:
    """Yield the frames that an exception and its causes came through, the outermost first."""
    seen: list[BaseException | None] = []
    cause: BaseException | None = error
    while cause is not None and cause not in seen:
        yield from (frame for frame, _ in traceback.walk_tb(cause.__traceback__))
        seen.append(cause)
        cause = cause.__cause__ or cause.__context__


def _guards_in(frame: FrameType) -> Iterator[Any]:
    """Yield the guards that generated code has in its names, or an interpreter for its nodes."""
    values = dict(frame.f_locals)
    interpreter = values.get("self")
    if isinstance(interpreter, torch.fx.Interpreter):
        values = interpreter.env
    yield from (value for value in values.values() if isinstance(value, torch._C._InferenceMode))


def outside_transforms() -> contextlib.AbstractContextManager[object]:
    """Leave all levels of functorch for a `with` block."""
    from torch._functorch.pyfunctorch import temporarily_clear_interpreter_stack

    return temporarily_clear_interpreter_stack()


def outside_function_modes() -> contextlib.AbstractContextManager[object]:
    """Disable modes of torch functions in a `with` block."""
    return torch._C.DisableTorchFunction()


def outside_dispatch_modes() -> contextlib.AbstractContextManager[object]:
    """Disable modes that intercept operators in a `with` block."""
    from torch.utils._python_dispatch import _disable_current_modes

    return _disable_current_modes()


def is_in_transform(value: torch.Tensor) -> bool:
    """Return whether a tensor belongs to a level of functorch: outside of it, it means nothing."""
    return torch._C._functorch.is_functorch_wrapped_tensor(value)


def is_dual(value: torch.Tensor) -> bool:
    """Return whether a strided tensor has a tangent of forward-mode differentiation."""
    unpack = torch._C._VariableFunctions._unpack_dual
    return value.layout == torch.strided and unpack(value, level=0)[1] is not None


def is_in_vmap(value: torch.Tensor) -> bool:
    """Return whether a tensor stands for a batch inside `vmap`, also under other transforms."""
    while is_in_transform(value):
        if torch._C._functorch.is_batchedtensor(value):
            return True
        value = torch._C._functorch.get_unwrapped(value)
    return False


def compile_session() -> AbstractContextManager[None]:
    """Make `torch.compiler.is_compiling()` true in a region, as Dynamo does (torch 2.13)."""
    context = getattr(torch.compiler, "_compile_session_context", contextlib.nullcontext)
    return context()


@cache
def start_autograd() -> None:
    """Run a first backward pass, so that a fork of a process without a GPU can run another.

    Autograd starts a thread for each device when it first runs, and a fork without these threads
    refuses to run it. A CUDA build of torch on a machine without a GPU has no device until the
    first `FakeTensorMode` registers eight.
    """
    if torch.cuda.is_available():
        return
    with outside_dispatch_modes(), torch.inference_mode(False), torch.enable_grad():
        torch.ones((), device="cpu", requires_grad=True).mul(1).backward()


def is_refused_in_fork(message: str) -> bool:
    """Return whether an exception is torch's refusal to run in a forked process.

    Autograd refuses if it has threads for devices in the parent, and CUDA if it is initialized.
    """
    return "autograd's threading in combination with fork" in message or (
        "CUDA in forked subprocess" in message
    )
