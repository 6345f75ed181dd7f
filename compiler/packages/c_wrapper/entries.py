"""Entry points for C programs as data: their inputs and outputs, their weights.

    CEntry("forward", schedule, kernels,
          inputs=(CValue("x", float32, (s0, 8)),),
          outputs=(CValue("output", float32, (s0, 8)),),
          given={"arg0_1": "w", "arg1_1": 0},
          symbols={"s0": (2, 1024)})

An entry point that C cannot run is listed all the same, with the reason.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

import torch

from ctk.compiler.codegen.c.kernel_function import KernelCode
from ctk.compiler.packages.input_guard import Condition
from ctk.compiler.runtime.steps import Schedule
from ctk.compiler.sizes.index import Index

Kind = Literal["tensor", "int"]

LARGEST = 2**63 - 1
"""Limit of a size without an upper bound."""

MAX_RANK = 16
"""`CTK_MAX_RANK` of ctk.h."""

DTYPES: Mapping[torch.dtype, tuple[str, int]] = {
    torch.uint8: ("CTK_UINT8", 0),
    torch.int8: ("CTK_INT8", 1),
    torch.int16: ("CTK_INT16", 2),
    torch.int32: ("CTK_INT32", 3),
    torch.int64: ("CTK_INT64", 4),
    torch.float16: ("CTK_FLOAT16", 5),
    torch.float32: ("CTK_FLOAT32", 6),
    torch.float64: ("CTK_FLOAT64", 7),
    torch.bool: ("CTK_BOOL", 11),
    torch.bfloat16: ("CTK_BFLOAT16", 15),
    torch.uint16: ("CTK_UINT16", 27),
    torch.uint32: ("CTK_UINT32", 28),
    torch.uint64: ("CTK_UINT64", 29),
}
"""Types of ctk.h, with torch's numbers for them (`c10::ScalarType`)."""


class NotInC(Exception):
    """An entry point cannot be run from C; the message has the reason."""


@dataclass(frozen=True, slots=True)
class CValue:
    """An input or an output as callers see it.

    Attributes:
        dtype: Of its elements; of a number, int64.
        shape: Sizes in size symbols; empty for a number.
        size: The value of a number, if it is known.
    """

    name: str
    dtype: torch.dtype
    shape: tuple[Index, ...] = ()
    kind: Kind = "tensor"
    size: Index | None = None
    is_written: bool = False


@dataclass(frozen=True, slots=True)
class Weight:
    """A parameter, a buffer or another constant.

    Attributes:
        strides: In elements.
        member: The member of the package with its bytes; None: the caller binds it.
        offset: Of its first byte in the member.
    """

    name: str
    dtype: torch.dtype
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    member: str | None = None
    offset: int = 0


@dataclass(frozen=True, slots=True)
class CEntry:
    """An entry point.

    Attributes:
        outputs: The results of the schedule, in order.
        given: The origin of each input and each constant of the schedule, by its name: the number
            of an input, or the name of a weight.
        symbols: The least and greatest value of each size symbol that inputs determine; None: any.
        refusal: Why C cannot run it, if that is known before it is printed.
    """

    name: str
    schedule: Schedule
    kernels: Sequence[KernelCode]
    inputs: tuple[CValue, ...]
    outputs: tuple[CValue, ...]
    given: Mapping[str, int | str]
    symbols: Mapping[str, tuple[int, int | None]] = field(
        default_factory=dict[str, tuple[int, int | None]]
    )
    conditions: tuple[Condition, ...] = ()
    refusal: str = ""


def dtype_code(dtype: torch.dtype) -> str:
    """Return the name of a type in ctk.h; raise `NotInC` if it has none."""
    if dtype not in DTYPES:
        raise NotInC(f"ctk.h has no type for {str(dtype).removeprefix('torch.')}")
    return DTYPES[dtype][0]
