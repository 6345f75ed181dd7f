"""Gather several tensors by one collective.

Rule: `wait(all_gather(x, n, group))`, ..., `wait(all_gather(y, n, group))` -> parts of
`wait(all_gather(cat([x, ..., y]), n, group))`.
Preconditions: one group, dtype and device; contiguous operands of known sizes that do not depend on
each other's results; each collective has one user, its wait; no write or mode in between; at most
`megabytes` of results. Exact: each number is copied. Off unless `enabled`, because the merged
result is memory of its own, and it depends on the network whether fewer, larger messages are faster
than the copies.

Source: `bucket_all_gather` of `torch/_inductor/fx_passes/bucketing.py`, which also gathers tensors
of several dtypes as bytes, and casts in front of a gather.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from ctk.compiler.fx.collectives import ALL_GATHER
from ctk.compiler.passes.post_grad.collectives import gather, merge_collectives
from ctk.compiler.rewriting.base import Example, Pass
from ctk.compiler.rewriting.rewriter import Rewriter


@dataclass(frozen=True, slots=True)
class BucketGathers(Pass):
    """Gather several tensors by one collective.

    Attributes:
        enabled: Merge them.
        megabytes: The largest merged result.
    """

    name = "bucket_gathers"
    enabled: bool = False
    megabytes: float = 25.0

    def run(self, rewriter: Rewriter) -> None:
        if self.enabled:
            merge_collectives(rewriter, {ALL_GATHER: self.megabytes})


def examples() -> list[Example]:
    """Return programs that the pass changes."""
    x, y = torch.ones(4, 3), torch.ones(3)
    return [(_sums, (x, y)), (_late_operand, (x, y))]


def _sums(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    return gather(x) * 2, gather(y.sin()).cos()


def _late_operand(x: Tensor, y: Tensor) -> Tensor:
    first = gather(x).sum()
    return gather(y.neg()) + first


PASS = BucketGathers()
