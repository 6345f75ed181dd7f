"""Turn `aten._to_copy` into `aten.to`, which TorchScript optimises and differentiates."""

import torch
from torch.fx import Graph

from ctk.compiler.codegen.torchscript.overloads import overload_nodes
from ctk.compiler.torch_compat.fx import operators

_DEFAULTS = {
    "dtype": None,
    "layout": None,
    "device": None,
    "pin_memory": None,
    "non_blocking": False,
    "copy": True,
    "memory_format": None,
}


def to_copy_to_to(graph: Graph) -> None:
    """aten._to_copy(x, **options) -> aten.to.dtype_layout(x, **options, copy=True).

    `_to_copy` always copies, hence `copy=True`. Every option is written out, which leaves
    TorchScript only this overload of `aten.to` to choose (numerics: exact).
    """
    for node in overload_nodes(graph):
        if operators.qualified_name_of(node.target) == "aten::_to_copy.default":
            node.target = torch.ops.aten.to.dtype_layout
            node.kwargs = {**_DEFAULTS, **node.kwargs}
