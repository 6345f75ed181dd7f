"""Widen small floats for a float64 reference: the rule, and a mode that applies it.

Converting the inputs is not enough: a program calls `.half()`, `dtype=torch.float32`, `.float()`,
and the first `mm` of a float32 and a float64 value would raise. So each request for a smaller float
becomes one for float64 (and complex64 one for complex128). Casts to integers and bools stay as they
are, because they are part of the meaning; so do the arguments of autocast regions, which leave
float64 values alone. Two things have no float64 meaning and are refused: reading the bits of a
value as another dtype, and float8 or quantized numbers. Those programs are compared with eager in
their own dtype.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from ctk.compiler.errors import PrecisionRefused

WIDER = {
    torch.float16: torch.float64,
    torch.bfloat16: torch.float64,
    torch.float32: torch.float64,
    torch.complex32: torch.complex128,
    torch.complex64: torch.complex128,
}
"""The dtype in a float64 reference, for each dtype that it replaces."""

METHODS = {
    "half": "double",
    "bfloat16": "double",
    "float": "double",
    "chalf": "cdouble",
    "cfloat": "cdouble",
}
"""Tensor methods that name a dtype smaller than float64, and their replacements."""

TYPE_NAMES = ("torch.FloatTensor", "torch.HalfTensor", "torch.BFloat16Tensor")
"""Legacy tensor types (`x.type("torch.FloatTensor")`) that are small floats."""


def wider(dtype: torch.dtype) -> torch.dtype:
    """Return the dtype that replaces `dtype` in a float64 reference.

    Raises:
        PrecisionRefused: For float8 and quantized numbers: their rounding is part of the program.
    """
    if (dtype.is_floating_point and dtype.itemsize == 1) or "qint" in str(dtype):
        raise PrecisionRefused(
            f"a value of dtype {dtype} means its rounding: it has no float64 form"
        )
    return WIDER.get(dtype, dtype)


def wide_argument(value: object) -> object:
    """Return the argument of a call with dtypes and legacy types widened; others as they are."""
    if isinstance(value, torch.dtype):
        return wider(value)
    return "torch.DoubleTensor" if isinstance(value, str) and value in TYPE_NAMES else value


def reads_bits(name: str, arguments: Iterable[object]) -> bool:
    """Return whether a call is a `view(dtype)`: of ops named view, only those take a dtype."""
    is_view = name.startswith(("view", "frombuffer"))
    return is_view and any(isinstance(value, torch.dtype) for value in arguments)


def widen(value: object) -> object:
    """Return an input in float64, a new leaf; values that are not tensors as they are."""
    if not isinstance(value, Tensor):
        return value
    wide = value.detach().to(wider(value.dtype), copy=True)
    return wide.requires_grad_(value.requires_grad)


class InFloat64(TorchFunctionMode):
    """Runs a program that is Python code, and widens its requests for smaller floats."""

    def __torch_function__(
        self,
        func: Callable[..., object],
        types: object,
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> object:
        name, named = getattr(func, "__name__", ""), kwargs or {}
        if "autocast" in name:
            return func(*args, **named)
        if reads_bits(name, (*args, *named.values())):
            raise PrecisionRefused(f"{name} reads bits as another dtype: it has no float64 form")
        if name in METHODS and isinstance(args[0], Tensor):
            return getattr(args[0], METHODS[name])()
        wide = {key: wide_argument(value) for key, value in named.items()}
        return func(*(wide_argument(value) for value in args), **wide)
