"""The variables that hold the values of a schedule in its C function."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from ctk.compiler.runtime.steps import Ref


@dataclass(frozen=True, slots=True)
class Tensor:
    """A tensor.

    Attributes:
        slot: Its number among the function's own values; None for inputs and weights.
    """

    text: str
    slot: int | None = None


@dataclass(frozen=True, slots=True)
class Number:
    """A number.

    Attributes:
        text: An expression of C, in parentheses if it needs them.
        kind: Its type: `bool` is an `int` as well.
        is_storage_offset: An offset in the storage of a tensor, plus a sum. C knows only the first
            element of a tensor, so the text is the sum.
    """

    text: str
    kind: str = "int"
    is_storage_offset: bool = False


@dataclass(frozen=True, slots=True)
class Items:
    """Several results of one call, each at the position of the step that picks it."""

    count: int


@dataclass(frozen=True, slots=True)
class Nothing:
    """No value: the result of a call that only checks."""


Place: TypeAlias = Tensor | Number | Items | Nothing
Find: TypeAlias = Callable[[Ref], Place]
