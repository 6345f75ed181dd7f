"""Operands without gaps for oneDNN's layers: it reads a bias by its place, and refuses overlaps.

Shared by several passes; this module has no pass.
"""

import torch
from torch.fx import Node

from ctk.compiler.fx.types import is_dense, tensor_of
from ctk.compiler.rewriting.rewriter import Rewriter

_DENSE = {"memory_format": torch.contiguous_format}


def dense_operand(rewriter: Rewriter, value: object, before: Node) -> object:
    """Return an operand without gaps in memory: itself, None, or a copy in front of a layer."""
    tensor = tensor_of(value)
    if tensor is None or is_dense(tensor):
        return value
    return _copy(rewriter, value, before)


def dense_matrix(rewriter: Rewriter, weight: object, before: Node) -> object:
    """Return a matrix without gaps, by rows or columns: itself, or a copy in front of a layer."""
    tensor = tensor_of(weight)
    if tensor is None or is_dense(tensor) or is_dense(tensor.t()):
        return weight
    return _copy(rewriter, weight, before)


def _copy(rewriter: Rewriter, value: object, before: Node) -> Node:
    return rewriter.insert(torch.ops.aten.clone.default, (value,), _DENSE, before=before)
