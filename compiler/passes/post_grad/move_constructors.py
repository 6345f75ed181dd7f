"""Make constants on the device where they are used.

Rule: `_to_copy(full(..., device=cpu), device=d)`, for all users of the constructor and one `d`
-> the same with `full(..., device=d)`; the copies stay for `remove_noops`.
Preconditions: `full`, `zeros`, `ones`, `eye`, `scalar_tensor`, and `arange` of integers (floats may
be rounded differently on another device), not pinned; every user copies it to `d`. Exact.

Source: `torch/_inductor/fx_passes/post_grad.py` (`ConstructorMoverPass`) also moves chains of
operators behind a constructor; this pass moves only values that are the same on every device.
"""

import torch
from torch.fx import Node

from ctk.compiler.fx.operator_facts import RANGES
from ctk.compiler.fx.types import tensor_of
from ctk.compiler.rewriting.base import Example, Pass
from ctk.compiler.rewriting.rewriter import Rewriter

aten = torch.ops.aten
_CONSTRUCTORS = frozenset(
    {
        aten.full.default,
        aten.zeros.default,
        aten.ones.default,
        aten.eye.default,
        aten.eye.m,
        aten.scalar_tensor.default,
        *RANGES,
    }
)
_COPIES = (aten._to_copy.default, torch.ops.prims.device_put.default)


class MoveConstructors(Pass):
    """Make constants on the device where they are used."""

    name = "move_constructors"

    def run(self, rewriter: Rewriter) -> None:
        for node in rewriter.nodes():
            device = _destination(node)
            if device is not None:
                _move(rewriter, node, device)


def _destination(node: Node) -> torch.device | None:
    """Return the only device that a constructor is copied to, if it may be made there."""
    tensor = tensor_of(node)
    if node.target not in _CONSTRUCTORS or tensor is None or node.kwargs.get("pin_memory"):
        return None
    if node.target in RANGES and tensor.is_floating_point():
        return None
    if tensor.device.type != "cpu" or any(user.target not in _COPIES for user in node.users):
        return None
    copies = [tensor_of(user) for user in node.users]
    devices = {copy.device if copy is not None else None for copy in copies}
    (device,) = devices if len(devices) == 1 else (None,)
    return device if device != tensor.device else None


def _move(rewriter: Rewriter, node: Node, device: torch.device) -> None:
    def make() -> Node:
        options = {**node.kwargs, "device": device}
        return rewriter.insert(node.target, node.args, options, before=node)

    rewriter.replace_by(f"{node.target} on cpu -> on {device.type}", [node], make)


def examples() -> list[Example]:
    """Return programs that the pass changes."""
    x = torch.ones(2, 3)
    return [
        (lambda x: (x, torch.zeros(2, 3).to("meta").dim()), (x,)),
        (lambda x: (x.sin(), aten.full.default([3], 2.0).to("meta").expand(2, 3)), (x,)),
        (lambda x: (x.sin(), aten.arange.start_step(0, 6, 2).to("meta")), (x,)),
    ]


PASS = MoveConstructors()
