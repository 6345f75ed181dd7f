"""The strided tensors that a sparse tensor is made of."""

# This package exists to use private names.
# pyright: reportPrivateUsage=false

import torch
from torch import Tensor

_ROWS = (torch.sparse_csr, torch.sparse_bsr)
_COLUMNS = (torch.sparse_csc, torch.sparse_bsc)


def sparse_parts(tensor: Tensor) -> tuple[Tensor, ...]:
    """Return indices and values of a sparse tensor; empty for any other tensor.

    Seen in torch 2.11 and 2.13: `Tensor._indices` and `_values`, of tensors that are not coalesced.
    """
    if tensor.layout == torch.sparse_coo:
        whole = torch.tensor([tensor.is_coalesced(), tensor.sparse_dim()], device="cpu")
        return (whole, tensor._indices(), tensor._values())
    if tensor.layout in _ROWS:
        return (tensor.crow_indices(), tensor.col_indices(), tensor.values())
    if tensor.layout in _COLUMNS:
        return (tensor.ccol_indices(), tensor.row_indices(), tensor.values())
    return ()
