"""Torch's C functions: `aoti_torch_*`, `torch_call_dispatcher`."""

# pyright: reportPrivateUsage=false, reportAttributeAccessIssue=false

import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import torch


def name_and_overload_of(operator: Any) -> tuple[str, str]:
    """Return `("aten::add", "Tensor")`; the overload `default` is empty."""
    return str(operator._schema.name), str(operator._schema.overload_name)


MEMORY_FORMATS: Mapping[torch.memory_format, int] = {
    torch.contiguous_format: 0,
    torch.preserve_format: 1,
    torch.channels_last: 2,
    torch.channels_last_3d: 3,
}
"""Torch's numbers for memory formats (`c10::MemoryFormat`)."""


@cache
def cpu_functions() -> Mapping[str, tuple[str, ...]]:
    """Return the types of the parameters of each C function for one operator on the CPU.

    Unlike the dispatcher's C function they take numbers that are `Scalar`s. In torch:
    `c_shim_cpu.h`, whose functions are in libtorch_cpu.so; none if it is not there.
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
