"""The parameters of torch's C functions (`aoti_torch_*`, `torch_call_dispatcher`)."""

# pyright: reportPrivateUsage=false, reportAttributeAccessIssue=false

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import torch


@dataclass(frozen=True, slots=True)
class Parameter:
    """An argument of an operator.

    Attributes:
        type: As the dispatcher has it: `Optional[List[int]]`, `ScalarType`, `number`.
        length: Length of the list that one number for a list of numbers stands for.
    """

    name: str
    type: str
    default: Any
    is_required: bool
    length: int | None


def parameters_of(operator: Any) -> tuple[Parameter, ...]:
    """Return the arguments of an overload, in the order of its schema.

    Seen in torch 2.11 and 2.13: `Argument.real_type`, because `Argument.type` is `int` for types of
    elements, layouts and memory formats.
    """
    return tuple(
        Parameter(
            str(each.name),
            str(each.real_type),
            each.default_value if each.has_default_value() else None,
            not each.has_default_value(),
            each.N,
        )
        for each in operator._schema.arguments
    )


def results_of(operator: Any) -> tuple[str, ...]:
    """Return the types of the results of an overload, as `Parameter.type` has them."""
    return tuple(str(each.real_type) for each in operator._schema.returns)


def name_and_overload_of(operator: Any) -> tuple[str, str]:
    """Return `("aten::add", "Tensor")`; the overload `default` is empty (torch 2.11, 2.13)."""
    return str(operator._schema.name), str(operator._schema.overload_name)


def memory_format_code(value: torch.memory_format) -> int:
    """Return torch's number for a memory format (`c10::MemoryFormat`, torch 2.11 and 2.13)."""
    return _MEMORY_FORMATS[value]


_MEMORY_FORMATS: Mapping[torch.memory_format, int] = {
    torch.contiguous_format: 0,
    torch.preserve_format: 1,
    torch.channels_last: 2,
    torch.channels_last_3d: 3,
}


@cache
def cpu_functions() -> Mapping[str, tuple[str, ...]]:
    """Return the types of the parameters of each C function for one operator on the CPU.

    Unlike the dispatcher's C function they take numbers that are `Scalar`s. Seen in torch
    2.11 and 2.13: `c_shim_cpu.h`, whose functions are in libtorch_cpu.so; none if it is not there.
    """
    folder = Path(torch.__file__).parent / "include/torch/csrc/inductor/aoti_torch/generated"
    header = folder / "c_shim_cpu.h"
    if not header.exists():
        return {}
    found = _FUNCTION.findall(header.read_text(encoding="utf-8"))
    return {
        name: tuple(each.strip().rpartition(" ")[0] for each in given.split(","))
        for name, given in found
    }


_FUNCTION = re.compile(r"AOTITorchError (aoti_torch_cpu_\w+)\(([^)]*)\);")


def version() -> str:
    """Return torch's version without the part after a `+`, like its C functions: `2.13.0`."""
    return str(torch.__version__).partition("+")[0]
