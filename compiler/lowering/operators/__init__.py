"""Lowerings: one operator, one function; listed by what they are.

A lowering takes the builder and the arguments of its node: tensors as `Array`, sizes that are known
at the call only as `Index`, all else as it stands in the graph. It returns an `Array`, a tuple of
them for several results (None for one that it cannot compute), or raises `NotLowered` with a
reason. A new one is a function and one line in the table of its module.
"""

from collections.abc import Callable, Mapping
from typing import Any

from ctk.compiler.lowering.operators.creation import CREATION
from ctk.compiler.lowering.operators.normalization import NORMALIZATION
from ctk.compiler.lowering.operators.pointwise import POINTWISE
from ctk.compiler.lowering.operators.reductions import REDUCTIONS

Lowering = Callable[..., Any]

LOWERINGS: Mapping[object, Lowering] = {
    **POINTWISE,
    **REDUCTIONS,
    **NORMALIZATION,
    **CREATION,
}
"""By operator overload."""
