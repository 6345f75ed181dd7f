"""Reduce several tensors over the ranks by one collective.

Rules, each with its wait and with parts of the merged result:
    1. `all_reduce(x, op, group)`, ..., `all_reduce(y, op, group)` -> one of `cat([x, ..., y])`
    2. `reduce_scatter(x, op, n, group)`, ... -> one of a table with a row for each rank
Preconditions: as for `bucket_gathers`, and one reduction `op`. Reassociates: a library adds the
numbers of the ranks in an order that depends on their place in the message.

With `auto` only where DDP asks for rule 1: its Python reducer
(`torch._dynamo.config.optimize_ddp = "python_reducer"`) reduces each gradient alone, and sets
`torch._inductor.config._fuse_ddp_communication` and the size of the buckets.

Source: `fuse_ddp_with_concat_op` of `torch/_inductor/fx_passes/ddp_fusion.py`, and
`bucket_reduce_scatter`, `bucket_all_reduce` of `bucketing.py`; results that a graph returns are
views of the bucket there, and copies here.
"""

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from ctk.compiler.fx.collectives import ALL_REDUCE, REDUCE_SCATTER
from ctk.compiler.passes.post_grad.collectives import merge_collectives, reduce, reduce_scatter
from ctk.compiler.rewriting.base import Example, Pass
from ctk.compiler.rewriting.rewriter import Rewriter
from ctk.compiler.torch_compat.inductor.inductor_api import ddp_bucket_megabytes


@dataclass(frozen=True, slots=True)
class BucketReductions(Pass):
    """Reduce several tensors over the ranks by one collective.

    Attributes:
        enabled: Merge them; `auto`: merge `all_reduce` if DDP asks for it, in buckets of its size.
        megabytes: The largest merged operand with `always`.
    """

    name = "bucket_reductions"
    numerics = "reassociates"
    enabled: Literal["auto", "always", "never"] = "auto"
    megabytes: float = 25.0

    def run(self, rewriter: Rewriter) -> None:
        if self.enabled == "always":
            both = {ALL_REDUCE: self.megabytes, REDUCE_SCATTER: self.megabytes}
            merge_collectives(rewriter, both)
        elif self.enabled == "auto" and ddp_bucket_megabytes():
            merge_collectives(rewriter, {ALL_REDUCE: ddp_bucket_megabytes()})


def examples() -> list[Example]:
    """Return programs that the pass changes."""
    x, y = torch.ones(4, 3), torch.ones(6)
    return [(_reductions, (x, y)), (_scatters, (x, y))]


def _reductions(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    return reduce(x + 1), reduce(y) * 2


def _scatters(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    return reduce_scatter(_twice(x)), reduce_scatter(_twice(y * 2)).neg()


def _twice(x: Tensor) -> Tensor:
    """Return a tensor that two ranks can share; torch crashes if they cannot share a number."""
    return torch.cat([x.flatten(), x.flatten()])


PASS = BucketReductions()
