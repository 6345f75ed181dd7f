"""Operators that a program registers itself: their schemas, and the code that a trace runs.

A trace runs of an operator what tells the shapes of its results (fake kernel), and what makes its
gradients; a kernel for a device only runs when the compiled program does, and is found by its name
then. `torch.library.custom_op` keeps all of them as Python functions. What `torch.library.Library`
registers is hidden in the dispatcher: known is for which keys, and a fake kernel.
"""

# What pyright says of private names is what this package is for.
# pyright: reportPrivateUsage=false, reportAttributeAccessIssue=false

from dataclasses import dataclass
from typing import Any

import torch

_TRACED = (
    "_abstract_fn", "_setup_context_fn", "_backward_fn", "_vmap_fn", "_torch_dispatch_fns",
    "_autocast_cuda_dtype", "_autocast_cpu_dtype",
)  # fmt: skip
"""What a `CustomOpDef` of torch 2.11 and 2.13 keeps besides its kernels."""

_DEVICES = ("CPU", "CUDA", "MPS", "XPU", "HPU", "MTIA")


@dataclass(frozen=True, slots=True)
class TracedCode:
    """What a trace knows of an operator.

    Attributes:
        schema: Its schemas, one for each overload.
        code: Functions and plain values.
    """

    schema: str
    code: tuple[object, ...]


def traced_code(operator: Any) -> TracedCode | str:
    """Return what a trace runs of an operator of the program, or why that is not known.

    Seen in torch 2.11 and 2.13: `OPDEFS`, `torch.library._defs`, `simple_registry`.
    """
    packet = operator if hasattr(operator, "overloads") else operator.overloadpacket
    name = packet._qualified_op_name
    schemas = [str(getattr(packet, each)._schema) for each in packet.overloads()]
    tags = [sorted(map(str, getattr(packet, each).tags)) for each in packet.overloads()]
    made = torch._library.custom_ops.OPDEFS.get(name)
    if made is not None:
        code = tuple(getattr(made, each, None) for each in _TRACED)
        return TracedCode(f"{schemas}{tags}", (*code, made._init_fn))
    if not any(each.partition(".")[0] == name for each in torch.library._defs):
        return "not registered from Python (torch.library)"
    keys = _keys_of(name)
    hidden = [key for key in keys if key not in _DEVICES]
    if hidden:
        return (
            f"its kernel for {hidden[0]} is hidden in the dispatcher; use torch.library.custom_op"
        )
    fake = torch._library.simple_registry.singleton.find(name).fake_impl.kernel
    function = getattr(fake, "func", fake)
    return TracedCode(f"{schemas}{tags}{keys}", (function,))


def _keys_of(name: str) -> list[str]:
    """Return for which dispatch keys Python has registered a kernel of an operator."""
    start = name.replace("::", "/")
    found = (each.rpartition("/") for each in torch.library._impls)
    return sorted({key for head, _, key in found if head.partition(".")[0] == start})
