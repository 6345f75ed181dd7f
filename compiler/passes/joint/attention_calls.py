"""The calls that replace attention: `scaled_dot_product_attention`, with the rows of eager.

A row whose scores are all -inf is NaN as written, and 0 in the kernels; with a finite number filled
in it is the mean of the values. Which rows these are follows from the masks alone, so the call puts
them back, in the result and in the gradients. `_safe_softmax` makes 0, as the kernels do.

Masks reach the kernels in one of two forms:

    1. keep   all masks choose scores to fill, with one number: a bool mask
    2. add    any is added: their sum, in which a fill is a large number that absorbs the scores

Of a mask that is added the gradients of the kernels are wrong where it is large throughout a row:
they make the weights again from the logarithm of their sum, in which a large number leaves no
digits for the sum. There the weights are made again as they are written. In float16 such a row
absorbs scores that the kernels, which add in float, would keep: it gets a query of zeros.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor
from torch.nn import functional
from torch.nn.attention import SDPBackend, sdpa_kernel

from ctk.compiler.fx.types import HALVES, same_sizes, type_text
from ctk.compiler.passes.joint.attention_reading import SAFE_SOFTMAX, Attention, Step, rounded
from ctk.compiler.passes.joint.attention_views import reshape, sizes_of

KERNELS = [SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH]
"""Not cuDNN's: its gradients of half-precision numbers are NaN for some masks (torch 2.11)."""
_of_softmax = torch.ops.aten._softmax_backward_data.default
_safe_softmax = SAFE_SOFTMAX


@dataclass(frozen=True, slots=True)
class MaskStep:
    """A step of masks, as data: see `Step`."""

    kind: str
    value: float
    keeps: bool
    dtype: torch.dtype
    level: tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Call:
    """The call that replaces attention.

    Attributes:
        lead: Sizes of batches and heads.
        masks: `None` without one; see above.
        rows: The results of rows that the masks empty.
        dtype: Of the softmax.
    """

    lead: tuple[Any, Any]
    scale: float
    p: float
    steps: tuple[MaskStep, ...]
    masks: Literal["keep", "add"] | None
    rows: Literal["nan", "mean", "zero"]

    def forward(self, q: Tensor, k: Tensor, v: Tensor, *masks: Tensor) -> Tensor:
        """Return attention of tensors of four dimensions."""
        if self.masks is None:
            return self._sdpa(q, k, v)
        if self.masks == "add":
            return self._added(q, k, v, self._sum(masks, q.dtype))
        keep = self._kept(masks)
        assert keep is not None  # the call has masks
        out = self._sdpa(q, k, v, keep)
        if self.rows == "zero":
            return out
        empty = keep.any(-1, keepdim=True).logical_not()
        return torch.where(empty, self._empty_row(empty, v), out)

    def gradients(self, of_out: Tensor, *operands: Tensor) -> tuple[Tensor, ...]:
        """Return attention, its gradients of `q`, `k` and `v`, and of a sum with masks."""
        q, k, v, *masks = operands
        if self.masks == "add":
            mask = self._sum(masks, q.dtype)
            gradients = self._gradients_of_sum(of_out, q, k, v, mask, self._kept(masks))
            return (self._added(q, k, v, mask), *gradients)
        with torch.enable_grad():
            leaves = [each.detach().requires_grad_() for each in (q, k, v)]
            out = self.forward(*leaves, *masks)
            return (out.detach(), *torch.autograd.grad(out, leaves, of_out))

    def _sdpa(self, *operands: Tensor) -> Tensor:
        with sdpa_kernel(KERNELS):
            return functional.scaled_dot_product_attention(
                *operands, dropout_p=self.p, scale=self.scale
            )

    def _kept(self, masks: Sequence[Tensor]) -> Tensor | None:
        """Return which scores no mask fills."""
        kept: Tensor | None = None
        for step, mask in self._lifted(masks):
            if step.kind == "fill":
                own = mask if step.keeps else ~mask
                kept = own if kept is None else kept & own
        return kept

    def _lifted(self, masks: Sequence[Tensor]) -> Iterator[tuple[MaskStep, Tensor]]:
        steps = (step for step in self.steps if step.kind != "cast")
        for step, mask in zip(steps, masks, strict=True):
            yield step, lift(mask, step.level, self.lead)

    def _sum(self, masks: Sequence[Tensor], dtype: torch.dtype) -> Tensor:
        """Return the sum of the masks: float, or of the dtype of the queries."""
        lifted, total = self._lifted(masks), torch.zeros((), dtype=dtype)
        for step in self.steps:
            mask = None if step.kind == "cast" else next(lifted)[1]
            if mask is not None and step.kind == "add":
                mask = mask if step.value == 1.0 else mask * step.value
                total = mask if total.dim() == 0 else total + mask
            elif mask is not None:
                kept = mask if step.keeps else ~mask
                total = torch.where(kept, total.to(mask.device), step.value)
            if step.kind != "cast" or step.dtype in HALVES:
                total = total.to(step.dtype)
        return total

    def _added(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
        if mask.dtype is torch.float16:
            absorbs = mask.amax(-1, keepdim=True) <= -32 / torch.finfo(mask.dtype).eps
            q = q.masked_fill(absorbs, 0)
        out = self._sdpa(q, k, v, mask)
        if self.rows == "zero":
            return out
        return out.masked_fill((mask == -torch.inf).all(-1, keepdim=True), torch.nan)

    def _gradients_of_sum(
        self,
        of_out: Tensor,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        mask: Tensor,
        kept: Tensor | None,
    ) -> tuple[Tensor, ...]:
        scores = (q @ k.transpose(-2, -1)) * self.scale + mask
        exact = torch.promote_types(scores.dtype, torch.float32)
        softmax = _safe_softmax if self.rows == "zero" else torch.softmax
        weights = softmax(scores.to(exact), -1)
        of_weights = (of_out @ v.transpose(-2, -1)).to(exact)
        of_sum = _of_softmax(of_weights, weights, -1, exact)
        of_scores = of_sum.to(q.dtype) * self.scale
        of_scores = of_scores if kept is None else torch.where(kept, of_scores, 0.0)
        of_values = weights.to(q.dtype).transpose(-2, -1) @ of_out
        return of_scores @ k, of_scores.transpose(-2, -1) @ q, of_values, of_sum

    def _empty_row(self, empty: Tensor, v: Tensor) -> Tensor:
        """Return the result of a row that the masks empty.

        The mean of the values; or NaN, with all of their gradient NaN where there is such a row:
        each value is multiplied by a weight of that row. Gradients of scores are not NaN: the mask
        is filled in.
        """
        if self.rows == "mean":
            return v.mean(-2, keepdim=True)
        if not v.requires_grad:
            return torch.full((), torch.nan, dtype=v.dtype, device=v.device)
        some = empty.any(-2, keepdim=True)
        nothing = torch.zeros_like(some, dtype=v.dtype).masked_fill(some, torch.nan)
        return (v * nothing).sum(-2, keepdim=True)


def lift(mask: Tensor, level: Sequence[Any], lead: Sequence[Any]) -> Tensor:
    """Return a mask of scores with other leading sizes for those of the call."""
    while mask.dim() < 2:
        mask = mask.unsqueeze(0)
    if mask.dim() == 2 or len(level) == 2:
        return mask
    if len(level) == 1:
        is_one = type(mask.shape[0]) is int and mask.shape[0] == 1
        return mask.unsqueeze(1) if is_one else reshape(mask, (*lead, *mask.shape[1:]))
    while mask.dim() < 5:
        mask = mask.unsqueeze(0)
    whole = mask.expand(*level[:2], *mask.shape[2:])
    return whole.reshape(lead[0], *mask.shape[2:])


def lead_of(attention: Attention) -> tuple[Any, Any] | str:
    """Return the sizes of batches and heads: those of the scores where they have two."""
    levels = [step.level for step in attention.steps]
    levels += [sizes_of(attention.softmax)[:-2]]
    for level in levels:
        if len(level) == 2:
            return level[0], level[1]
    if any(len(level) == 3 for level in levels):
        level = next(level for level in levels if len(level) == 3)
        return level[0] * level[1], level[2]
    if all(len(level) == 1 for level in levels):
        return levels[0][0], 1
    return f"the scores have the leading sizes {levels[0]}"


def call_of(attention: Attention) -> Call | str:
    """Return the call that replaces attention, or why there is none."""
    lead, steps = lead_of(attention), attention.steps
    if isinstance(lead, str):
        return lead
    reason = _refusal(attention, lead)
    if reason:
        return reason
    masking = [step for step in steps if step.kind != "scale"]
    fills = _fills(steps)
    is_sum = any(step.kind == "add" for step in steps) or len({*fills}) > 1
    if not is_sum:
        masking = [step for step in masking if step.kind == "fill"]
    masks = "add" if is_sum else "keep" if fills else None
    query = attention.operands[0].meta["val"].dtype
    largest = -1e30 if is_sum else max(rounded(-1e9, query), torch.finfo(query).min)
    low = next((fill for fill in fills if fill > largest), None)
    if low is not None:
        return f"the scores are filled with {low}, above {largest}: a score may be as low"
    made = tuple(
        MaskStep(step.kind, step.value, step.keeps, step.dtype, tuple(step.level))
        for step in masking
    )
    rows = "zero" if attention.softmax.target is SAFE_SOFTMAX else "nan"
    is_finite = masks == "keep" and fills[0] != -torch.inf
    if attention.dropout is not None and (is_sum or is_finite):
        return "dropout of weights that are made again, or of a mean, draws its own numbers"
    return Call(lead, attention.scale, attention.p, made, masks, "mean" if is_finite else rows)


def _fills(steps: Sequence[Step]) -> list[float]:
    """Return the numbers that are filled in, as the casts behind leave them."""
    fills: list[float] = []
    for step in steps:
        fills += [step.value] if step.kind == "fill" else []
        fills = [rounded(fill, step.dtype) for fill in fills]
    return fills


def _refusal(attention: Attention, lead: Sequence[Any]) -> str | None:
    query = attention.operands[0].meta["val"].dtype
    softmax = attention.softmax.meta["val"].dtype
    is_masked = False
    for step in attention.steps:
        if step.dtype not in (query, torch.float32):
            return f"{step.node} is {step.dtype}, not {query} or torch.float32"
        if step.kind == "scale" and is_masked:
            return f"{step.node} scales scores that are masked"
        is_masked = is_masked or step.mask is not None
        mask = None if step.mask is None else step.mask.meta["val"]
        if mask is not None and (mask.dtype == torch.bool) != (step.kind == "fill"):
            return f"the mask {step.mask} is {type_text(mask)}"
        if mask is not None and mask.dim() == 0:
            return f"the mask {step.mask} is one number"
        is_lifted = mask is not None and mask.dim() > 2 and len(step.level) == 3
        if is_lifted and not same_sizes(step.level[-1:], lead[-1:]):
            return f"the mask {step.mask} is for other heads"
    if softmax not in (query, torch.float32):
        return f"the softmax is {softmax}, not {query} or torch.float32"
    return None
