"""Single values of torch by name: dtypes, devices, floats that JSON cannot hold, symbolic sizes."""

import functools
import math
import re
from typing import cast

import torch

from ctk.compiler.errors import CaseError, NotHeld
from ctk.compiler.observe import first_line
from ctk.compiler.torch_compat.fake import fake_tensors as fake
from ctk.toolkit.case.formats.plain_text import quote_value
from ctk.toolkit.case.formats.strict_json import expect, look_up, member

_DEVICE = re.compile(r"[a-z]{2,20}(:\d{1,3})?")


def dtype_name(dtype: torch.dtype) -> str:
    """Return `float32` for `torch.float32`."""
    return str(dtype).removeprefix("torch.")


@functools.cache
def dtypes() -> dict[str, torch.dtype]:
    """Return the dtypes whose values are numbers, by name.

    Read from the module's own names: `getattr(torch, name)` would import `torch.onnx` for `onnx`.
    Quantized dtypes and those of bare bits are left out: a case cannot hold their values.
    """
    found = {key: value for key, value in vars(torch).items() if isinstance(value, torch.dtype)}
    return {key: found[key] for key in found if not key.startswith(("q", "bits"))}


def dtype_from_name(name: str, where: str) -> torch.dtype:
    """Return the dtype of a name; raise `CaseError` if this torch has none."""
    problem = f"{where}: torch {torch.__version__} has no dtype {quote_value(name)}"
    return look_up(dtypes(), name, problem)


def device_from_name(name: str, where: str) -> torch.device:
    """Return a device, which need not exist here; raise `CaseError` if torch has no such type."""
    if not _DEVICE.fullmatch(name):
        raise CaseError(f"{where}: {quote_value(name)} is not a device (`cpu`, `cuda:1`)")
    try:
        return torch.device(name)
    except RuntimeError as error:
        raise CaseError(f"{where}: {name!r} is not a device: {first_line(error)}") from error


def float_to_json(value: float) -> object:
    """Return a finite float as itself (JSON keeps all bits and -0.0), NaN and Inf by name."""
    return value if math.isfinite(value) else {"float": str(value)}


def float_from_json(data: object, where: str) -> float:
    """Return a float that `float_to_json` wrote; raise `CaseError` if it is another value."""
    if isinstance(data, dict):
        name = member(cast("dict[str, object]", data), "float", str, where)
        if name in ("nan", "inf", "-inf"):
            return float(name)
        raise CaseError(f"{where}: {quote_value(name)} is not nan, inf or -inf")
    return expect(data, float, where)


def size_hint(size: object) -> int:
    """Return a size as an int; a symbolic one gives its hint, without a guard on it.

    Raises:
        CaseError: It is a symbol without a hint, which depends on data.
    """
    if isinstance(size, int):
        return size
    symbol, hint = fake.symbol_and_hint(size)
    if isinstance(hint, int):
        return hint
    raise NotHeld(f"size {symbol} depends on data, so it has no value to save; pass real inputs")
