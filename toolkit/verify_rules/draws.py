"""A draw: a program with operands, neighbours and a way out, as data that can be made smaller.

    Draw(t(t(x)), {"x": TensorDraw(float32, (2, 3), "sliced", (1, "nan"))}, (), returned=True)

What it does not do: it builds no graph (`graphs.py`), and does not choose (`drawing.py`).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from ctk.toolkit.verify_rules.layouts import LAYOUTS, extent
from ctk.toolkit.verify_rules.program import Program
from ctk.toolkit.verify_rules.values import Value, filled


@dataclass(frozen=True, slots=True)
class TensorDraw:
    """One tensor operand.

    Attributes:
        dtype: Of its elements.
        shape: Its sizes.
        layout: How it lies in memory; a word of `layouts.py`.
        values: What fills its storage, again and again.
        place: `input`: a placeholder; `constant`: an attribute of the graph; `view`: a view, made
            in the graph, of a placeholder.
    """

    dtype: torch.dtype
    shape: tuple[int, ...]
    layout: str = "contiguous"
    values: tuple[Value, ...] = (1, 2, 3)
    place: Literal["input", "constant", "view"] = "input"

    def tensor(self) -> Tensor:
        """Return the operand."""
        strides = LAYOUTS[self.layout](self.shape)
        storage = filled(self.dtype, self.values, extent(self.shape, strides))
        return storage.as_strided(self.shape, strides)


@dataclass(frozen=True, slots=True)
class Constant:
    """An operand that is no tensor; `value` is a number, None, a tuple of ints or a dtype."""

    value: object


@dataclass(frozen=True, slots=True)
class SameAs:
    """An operand that is another one: the same node stands for two variables."""

    name: str


Operand = TensorDraw | Constant | SameAs | tuple[TensorDraw, ...]


@dataclass(frozen=True, slots=True)
class Neighbour:
    """A node beside the program.

    Attributes:
        kind: `use`: reads a value of the program, and is returned; `return`: the value itself is;
            `drop`: reads it, and nobody uses that; `write`: writes to it.
        of: A variable (`x`; of a view, its base), or the number of a call.
        at: In front of which call it stands; behind all of them where there is none of that number.
    """

    kind: Literal["use", "return", "drop", "write"]
    of: str | int
    at: int


@dataclass(frozen=True, slots=True)
class Draw:
    """One question: does the rule keep what this graph computes with these inputs?

    Attributes:
        program: What the rule is tried on.
        bound: What each variable stands for, in the order of the graph's inputs.
        neighbours: Other nodes.
        returned: Whether the results are returned themselves; else copies, made at the end.
        dynamic: Whether the sizes of the inputs are symbols.
        grown: By how much the sizes above 1 grow when a graph with symbols is run.
    """

    program: Program
    bound: Mapping[str, Operand]
    neighbours: tuple[Neighbour, ...] = ()
    returned: bool = True
    dynamic: bool = False
    grown: int = 0

    def tensors(self) -> dict[str, TensorDraw]:
        """Return the operands that are one tensor, by name."""
        return {name: each for name, each in self.bound.items() if isinstance(each, TensorDraw)}
