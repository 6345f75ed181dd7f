"""Replace the fake (meta) implementation of an operator by its real kernel.

A compiler reads shapes, types and strides from the fake implementations of operators. A wrong
one can be replaced during a compile: the kernel runs on stand-ins of the operands, and its result
gives the type.

    fake   copysign(f32[5, 6] strides (1, 5), f32[5, 6] strides (6, 1))  ->  strides (6, 1)
    real   copysign on two such tensors                                  ->  strides (1, 5)

Results that are views of an operand, or written into one, are not replaced. Stand-ins hold ones
(floats) and zeros, so that an operator which refuses these is not replaced either.
"""

# pyright: reportPrivateUsage=false, reportAttributeAccessIssue=false

import threading
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch

from ctk.compiler.torch_compat.fake import fake_tensors as fake
from ctk.compiler.torch_compat.fx import graphs
from ctk.compiler.torch_compat.fx.operator_types import OpOverload
from ctk.compiler.torch_compat.inductor.patch_sites import Site, wrap_site
from ctk.compiler.torch_compat.process.process_state import outside_dispatch_modes


@contextmanager
def fake_kernels_watched(allow: Callable[[OpOverload], bool]) -> Generator[None]:
    """Ask `allow` about each operator that fake tensors meet in this thread.

    The real kernel replaces a refused one. The caller holds the compile lock.
    In torch: `FakeTensorMode.dispatch`, in front of its cache.
    """
    from torch._subclasses.fake_tensor import FakeTensorMode

    thread = threading.get_ident()

    def wrap(original: Callable[..., Any]) -> Callable[..., Any]:
        def dispatch(mode: Any, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            ask = partial(original, mode, func, types, args, kwargs or {})
            if threading.get_ident() != thread or not _is_replaceable(func) or allow(func):
                return ask()
            return _answer(mode, func, tuple(args), kwargs or {}, ask)

        return dispatch

    with wrap_site(Site(FakeTensorMode, "dispatch"), wrap):
        yield


def _is_replaceable(func: Any) -> bool:
    return isinstance(func, OpOverload) and not func._schema.is_mutable and not func.is_view


def _answer(mode: Any, func: OpOverload, args: Any, kwargs: Any, ask: Callable[[], Any]) -> Any:
    """Return the fake result, corrected by the real kernel if that runs."""
    try:
        said, error = ask(), None
    except Exception as raised:
        if fake.is_data_dependent(raised):
            raise
        said, error = None, raised
    try:
        real = _real(func, args, kwargs)
    except Exception:  # it refuses the stand-ins: the fake implementation is all there is
        if error is not None:
            raise error from None
        return said
    if error is not None:
        return graphs.tree_map(lambda value: fake.to_fake(value, mode), real)
    told, gave = graphs.tree_leaves(said), graphs.tree_leaves(real)
    if len(told) != len(gave):
        return said
    right = iter([_put_right(mode, *pair) for pair in zip(told, gave, strict=True)])
    return graphs.tree_map(lambda _: next(right), said)


def _real(func: OpOverload, args: Any, kwargs: Any) -> Any:
    from torch._dispatch.python import no_python_dispatcher

    with outside_dispatch_modes(), no_python_dispatcher(), torch.no_grad():
        real_args, real_kwargs = graphs.tree_map(_stand_in, (args, dict(kwargs)))
        return func(*real_args, **real_kwargs)


def _stand_in(value: object) -> object:
    """Return a real tensor like a fake one, and the number that a symbolic one has here."""
    if fake.is_symbolic(value):
        return fake.symbol_and_hint(value)[1]
    if not isinstance(value, torch.Tensor) or not fake.is_fake(value):
        return value
    sizes, strides = (_numbers(each) for each in (value.shape, value.stride()))
    made = torch.empty_strided(sizes, strides, dtype=value.dtype, device=value.device)
    return made.fill_(1 if made.is_floating_point() or made.is_complex() else 0)


def _numbers(values: Sequence[Any]) -> list[int]:
    known = [fake.symbol_and_hint(v)[1] if fake.is_symbolic(v) else v for v in values]
    if None in known:
        raise ValueError("a size that only run time knows")
    return [int(each) for each in known if each is not None]


def _put_right(mode: Any, told: object, real: object) -> object:
    """Return a fake tensor with the form of the real one; the same one if it is right."""
    if not isinstance(told, torch.Tensor) or not isinstance(real, torch.Tensor):
        return told
    if fake.has_unbacked(told) or real.layout is not torch.strided:
        return told
    sizes = list(told.shape) if _numbers(told.shape) == list(real.shape) else list(real.shape)
    is_same = sizes == list(told.shape) and _numbers(told.stride()) == list(real.stride())
    is_placed = told.device.type == real.device.type
    if is_same and is_placed and told.dtype == real.dtype:
        return told
    device = told.device if is_placed else real.device
    with mode:
        return torch.empty_strided(sizes, _strides(sizes, real), dtype=real.dtype, device=device)


def _strides(sizes: Sequence[Any], real: torch.Tensor) -> list[Any]:
    """Return the strides of a real tensor; with symbolic sizes, dense ones in the same order."""
    if not any(fake.is_symbolic(size) for size in sizes):
        return list(real.stride())
    strides: list[Any] = [1] * len(sizes)
    step: Any = 1
    for dim in sorted(range(len(sizes)), key=lambda d: (real.stride(d), real.size(d))):
        strides[dim] = step
        step = step * sizes[dim]
    return strides
