"""Lowerings: one function for each operator, in one table for each kind of operator.

A lowering takes the builder and the arguments of its node: tensors as `Array`, sizes that only the
call knows as `Index`, everything else as it stands in the graph. It returns

    an `Array`                  the result; the builder writes it to memory of eager's strides
    a tuple of arrays           several results; None in place of a result that it cannot compute
    a `View`                    memory that it has written, for an operator that writes

or raises `NotLowered` with a reason: then the node is a library call. A lowering that suits any
element type computes in `raised(x)`, which is float32 for floats of 16 bits.

    def _square(b: Builder, x: Array) -> Array:
        return raised(x) * raised(x)

CONTRIBUTING.md, "Add a lowering", has the steps.
"""

from collections.abc import Callable, Mapping
from typing import Any

from ctk.compiler.lowering.operators import (
    activation_gradients,
    activations,
    bessel_functions,
    block_reductions,
    comparisons,
    creation,
    foreach,
    functions,
    indexing,
    losses,
    movement,
    normalization,
    normalization_gradients,
    padding,
    pointwise,
    pooling,
    random,
    reductions,
    scans,
    searches,
    softmax,
    special_functions,
    writes,
)

Lowering = Callable[..., Any]

TABLES: tuple[Mapping[Any, Lowering], ...] = (
    pointwise.TABLE,
    comparisons.TABLE,
    functions.TABLE,
    special_functions.TABLE,
    bessel_functions.TABLE,
    activations.TABLE,
    activation_gradients.TABLE,
    reductions.TABLE,
    softmax.TABLE,
    scans.TABLE,
    searches.TABLE,
    normalization.TABLE,
    normalization_gradients.TABLE,
    losses.TABLE,
    movement.TABLE,
    padding.TABLE,
    indexing.TABLE,
    pooling.TABLE,
    block_reductions.TABLE,
    creation.TABLE,
    random.TABLE,
    foreach.TABLE,
    writes.TABLE,
)
"""One for each module; no operator is in two."""

LOWERINGS: Mapping[object, Lowering] = {
    operator: lowering for table in TABLES for operator, lowering in table.items()
}
"""By operator overload."""
