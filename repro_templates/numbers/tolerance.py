"""How far two correct results may lie apart: a table by dtype and numerics, each row sourced.

Two bases. `exact` rows are the defaults of `torch.testing.assert_close`. The other rows are derived
from the unit roundoff u of a dtype (half the distance from 1 to the next number): u = 2^-53, 2^-24,
2^-11, 2^-8 for float64, float32, float16, bfloat16.

* `reassociates`: a sum of n terms in another order differs by about sqrt(n) * u of its size when
  the roundings are independent (Higham & Mary 2019). n = 2^20, a large reduction, gives 1024 u.
  Half types accumulate in float32 and round once or a few times: 8 u.
* `lowers_precision`: the result may come from the next smaller dtype, so it gets that dtype's
  `reassociates` row.

Integers and bools are exact.

Source: N. Higham, T. Mary, "A new approach to probabilistic rounding error analysis", SIAM J. Sci.
Comput. 41 (2019); the table of `torch.testing.assert_close`, torch 2.13 documentation.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import torch

from ctk.compiler.observe import Numerics


@dataclass(frozen=True, slots=True)
class Tolerance:
    """A difference below `atol + rtol * size` is not a failure; `source` is the origin of both."""

    rtol: float
    atol: float
    source: str


Rows = Mapping[torch.dtype, Tolerance]
"""One column of the table; complex dtypes use the row of their parts."""

TESTING = "torch.testing.assert_close default"
SUMS = "sqrt(n) * u with n = 2^20, u = 2^-24"
FEW = "8 u: accumulated in float32, rounded a few times"
INTEGERS = Tolerance(0.0, 0.0, "integers and bools are exact")

EXACT: Rows = {
    torch.float64: Tolerance(1e-7, 1e-7, TESTING),
    torch.float32: Tolerance(1.3e-6, 1e-5, TESTING),
    torch.float16: Tolerance(1e-3, 1e-5, TESTING),
    torch.bfloat16: Tolerance(1.6e-2, 1e-5, TESTING),
}
REASSOCIATES: Rows = {
    torch.float64: Tolerance(1e-7, 1e-7, f"{TESTING}; sqrt(n) * u = 1.1e-13 is far below"),
    torch.float32: Tolerance(2**-14, 1e-5, SUMS),
    torch.float16: Tolerance(2**-8, 1e-5, FEW),
    torch.bfloat16: Tolerance(2**-5, 1e-5, FEW),
}
LOWERS_PRECISION: Rows = {
    torch.float64: Tolerance(2**-14, 1e-5, f"float32: {SUMS}"),
    torch.float32: Tolerance(2**-5, 1e-5, f"bfloat16: {FEW}"),
    torch.float16: Tolerance(2**-5, 1e-5, f"bfloat16: {FEW}"),
    torch.bfloat16: Tolerance(2**-2, 1e-5, "float8_e4m3: 4 u with u = 2^-4"),
}
TABLE: Mapping[Numerics, Rows] = {
    "exact": EXACT,
    "reassociates": REASSOCIATES,
    "lowers_precision": LOWERS_PRECISION,
}

PARTS = {
    torch.complex32: torch.float16,
    torch.complex64: torch.float32,
    torch.complex128: torch.float64,
}


def tolerance_for(dtype: torch.dtype, rows: Rows) -> Tolerance:
    """Return the tolerance of results of a dtype."""
    dtype = PARTS.get(dtype, dtype)
    if dtype in rows:
        return rows[dtype]
    return _one_step(dtype) if dtype.is_floating_point else INTEGERS


def _one_step(dtype: torch.dtype) -> Tolerance:
    """Return the row of a float8 dtype: a neighbouring number is as good, in any numerics."""
    info = torch.finfo(dtype)
    return Tolerance(info.eps, info.smallest_normal, f"one step of {dtype}: eps = {info.eps}")
