"""Lowerings: one operator, one function; listed by what they are.

A lowering takes the builder and the arguments of its node: tensors as `Array`, sizes that are known
at the call only as `Index`, all else as it stands in the graph. It returns an `Array`, several of
them for several results (None for one that it cannot compute), a `View` of memory that it has
written, or raises `NotLowered` with a reason. A new one is a function and one line in the table of
its module.
"""

from collections.abc import Callable, Mapping
from typing import Any

from ctk.compiler.lowering.operators.activation_gradients import ACTIVATION_GRADIENTS
from ctk.compiler.lowering.operators.activations import ACTIVATIONS
from ctk.compiler.lowering.operators.comparisons import COMPARISONS
from ctk.compiler.lowering.operators.creation import CREATION
from ctk.compiler.lowering.operators.foreach import FOREACH
from ctk.compiler.lowering.operators.functions import FUNCTIONS
from ctk.compiler.lowering.operators.indexing import INDEXING
from ctk.compiler.lowering.operators.losses import LOSSES
from ctk.compiler.lowering.operators.movement import MOVEMENT
from ctk.compiler.lowering.operators.normalization import NORMALIZATION
from ctk.compiler.lowering.operators.normalization_gradients import NORMALIZATION_GRADIENTS
from ctk.compiler.lowering.operators.pointwise import POINTWISE
from ctk.compiler.lowering.operators.random import RANDOM
from ctk.compiler.lowering.operators.reductions import REDUCTIONS
from ctk.compiler.lowering.operators.scans import SCANS
from ctk.compiler.lowering.operators.softmax import SOFTMAX
from ctk.compiler.lowering.operators.writes import WRITES

Lowering = Callable[..., Any]

TABLES: tuple[Mapping[Any, Lowering], ...] = (
    POINTWISE,
    COMPARISONS,
    FUNCTIONS,
    ACTIVATIONS,
    ACTIVATION_GRADIENTS,
    REDUCTIONS,
    SOFTMAX,
    SCANS,
    NORMALIZATION,
    NORMALIZATION_GRADIENTS,
    LOSSES,
    MOVEMENT,
    INDEXING,
    CREATION,
    RANDOM,
    FOREACH,
    WRITES,
)
"""One for each module, no operator in two."""

LOWERINGS: Mapping[object, Lowering] = {
    operator: lowering for table in TABLES for operator, lowering in table.items()
}
"""By operator overload."""
