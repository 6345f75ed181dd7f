"""Where the values of a schedule are in the C function that runs it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from ctk.compiler.runtime.steps import Ref


@dataclass(frozen=True, slots=True)
class Tensor:
    """A tensor.

    Attributes:
        text: The address of its `ctk_value`.
        slot: Its number among the function's own values; None for inputs and weights.
    """

    text: str
    slot: int | None = None


@dataclass(frozen=True, slots=True)
class Number:
    """A number.

    Attributes:
        text: An expression of C, in parentheses if it needs them.
        kind: Its type: `bool` is an `int`, too.
        is_storage_offset: Where a tensor begins in its storage, and then what was added to that: C
            knows tensors by where they begin, so the text is what was added.
    """

    text: str
    kind: str = "int"
    is_storage_offset: bool = False


@dataclass(frozen=True, slots=True)
class Items:
    """Several results of one call, each in the place of the step that picks it."""

    count: int


@dataclass(frozen=True, slots=True)
class Nothing:
    """No value: of a call that only checks."""


Place: TypeAlias = Tensor | Number | Items | Nothing
Find: TypeAlias = Callable[[Ref], Place]
