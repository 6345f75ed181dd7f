"""Operators that a program registers itself: their schemas, and the code that a trace runs.

A trace runs an operator's fake kernel, which gives the shapes of its results, and its gradient; a
kernel for a device only runs in the compiled program, found by its name. `torch.library.custom_op`
keeps all of them as Python functions. Registrations of `torch.library.Library` are hidden in the
dispatcher: only their keys and a fake kernel are known. Seen in torch 2.11 and 2.13.
"""

# pyright: reportPrivateUsage=false, reportAttributeAccessIssue=false

from dataclasses import dataclass
from typing import Any

import torch

_TRACED = (
    "_abstract_fn", "_setup_context_fn", "_backward_fn", "_vmap_fn", "_torch_dispatch_fns",
    "_autocast_cuda_dtype", "_autocast_cpu_dtype",
)  # fmt: skip
"""Attributes of a `CustomOpDef` of torch 2.11 and 2.13 besides its kernels."""

_DEVICES = ("CPU", "CUDA", "MPS", "XPU", "HPU", "MTIA")


@dataclass(frozen=True, slots=True)
class TracedCode:
    """The schemas of an operator, one per overload, and the code that a trace depends on."""

    schema: str
    code: tuple[object, ...]


def code_of_trace(operator: Any) -> TracedCode | str:
    """Return the code of a program's operator that a trace runs, or why it is unknown."""
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
