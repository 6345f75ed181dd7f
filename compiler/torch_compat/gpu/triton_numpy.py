"""Functions of CUDA's libdevice in numpy, for Triton's interpreter, which has none of its own."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch


def _rsqrt(x: Any) -> Any:
    return 1 / np.sqrt(x)


def _in_float64(function: Callable[[torch.Tensor], torch.Tensor]) -> Callable[..., Any]:
    """Return torch's function, which numpy lacks, on arrays of numpy."""

    def call(x: Any) -> Any:
        return function(torch.from_numpy(np.array(x, dtype=np.float64))).numpy()

    return call


FUNCTIONS: Mapping[str, Callable[..., Any]] = {
    "exp": np.exp, "exp2": np.exp2, "expm1": np.expm1, "log": np.log, "log2": np.log2,
    "log10": np.log10, "log1p": np.log1p, "rsqrt": _rsqrt, "pow": np.power, "hypot": np.hypot,
    "sin": np.sin, "cos": np.cos, "tan": np.tan, "asin": np.arcsin, "acos": np.arccos,
    "atan": np.arctan, "atan2": np.arctan2, "sinh": np.sinh, "cosh": np.cosh, "tanh": np.tanh,
    "asinh": np.arcsinh, "acosh": np.arccosh, "atanh": np.arctanh,
    "erf": _in_float64(torch.erf), "erfc": _in_float64(torch.erfc),
    "erfinv": _in_float64(torch.erfinv), "lgamma": _in_float64(torch.lgamma), "trunc": np.trunc,
    "nearbyint": np.rint, "fmod": np.fmod, "copysign": np.copysign, "nextafter": np.nextafter,
}  # fmt: skip
