"""The pass contract: Pass, and the Rewriter through which every change to a graph goes."""

from collections.abc import Callable
from dataclasses import dataclass

from ctk.compiler.observe import Numerics
from ctk.compiler.rewriting.rewriter import Rewriter


@dataclass(frozen=True, slots=True)
class Pass:
    """A named graph transformation of one stage.

    Attributes:
        name: Unique within its stage's table.
        run: Applies the pass to one graph through its rewriter. Called once for each nested
            sub-graph too, innermost first.
        numerics: What it does to values: `exact`, `reassociates` or `lowers_precision`.
    """

    name: str
    run: Callable[[Rewriter], None]
    numerics: Numerics = "exact"
