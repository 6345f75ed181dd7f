"""The ways in which programs write attention that `fuse_attention` knows, and the call for each.

Scores are `q @ k.mT` times or over a scale, or with a scaled query; then a mask: added, filled in
or chosen by `where`; then the softmax, in float for half inputs; then dropout; then `@ v`. The
heads may come transposed or not: `q`, `k` and `v` stand for any node, so a view before them is not
part of the form.

A row whose scores are all -inf is NaN as written, and 0 in the fused kernels. Whether there is one
follows from the mask alone, so each form with a mask puts the NaN back, in the result and in the
gradients.

Of a mask that is added the kernels' gradients are wrong where it is large throughout a row (the
smallest finite number, as models write it): they make the weights again from the logarithm of their
sum, in which a large number leaves no digits for the sum. There the weights are made again as they
are written (`_AddedMask`).
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import wraps
from typing import Any, Literal

import torch
from torch import Tensor
from torch.nn import functional
from torch.nn.attention import SDPBackend, sdpa_kernel

KERNELS = [SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH]
"""Not cuDNN's: its gradients of half-precision numbers are NaN for some masks (torch 2.11)."""
SCALE: Mapping[str, float] = {"scale": 4.27}
DROPOUT: Mapping[str, float] = {"scale": 4.27, "p": 0.113377}


@dataclass(frozen=True, slots=True)
class Form:
    """One way to write attention.

    Attributes:
        name: `scaled_by_division`.
        search: The function to search for: tensors, then scalars by name.
        replace: The same with one call of attention.
        mask: Kind of the fourth argument, if there is one.
        scalars: Scalar arguments with values that occur nowhere else.
        dtype: Of `q`, `k` and `v`.
        dropout: Whether it draws random numbers: there is none in inference.
    """

    name: str
    search: Callable[..., Any]
    replace: Callable[..., Any]
    mask: Literal["float", "bool"] | None = None
    scalars: Mapping[str, float] = field(default_factory=dict[str, float])
    dtype: torch.dtype = torch.float32
    dropout: bool = False

    def example_inputs(self, *, training: bool) -> list[Tensor]:
        """Return small tensors of the form's types; floating ones require gradients."""
        options: dict[str, Any] = {"dtype": self.dtype, "requires_grad": training}
        inputs = [torch.zeros(2, 3, 4, 8, **options) for _ in "qkv"]
        if self.mask == "bool":
            inputs.append(torch.zeros(2, 1, 4, 4, dtype=torch.bool))
        if self.mask == "float":
            inputs.append(torch.zeros(2, 1, 4, 4, dtype=self.dtype))
        return inputs


def _scores(q: Tensor, k: Tensor) -> Tensor:
    return q @ k.transpose(-2, -1)


def _plain(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return _scores(q, k).softmax(-1) @ v


def _divided(q: Tensor, k: Tensor, v: Tensor, *, scale: float) -> Tensor:
    return (_scores(q, k) / scale).softmax(-1) @ v


def _times(q: Tensor, k: Tensor, v: Tensor, *, scale: float) -> Tensor:
    return (_scores(q, k) * scale).softmax(-1) @ v


def _query(q: Tensor, k: Tensor, v: Tensor, *, scale: float) -> Tensor:
    return _scores(q * scale, k).softmax(-1) @ v


def _plain_mask(q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
    return (_scores(q, k) + mask).softmax(-1) @ v


def _divided_mask(q: Tensor, k: Tensor, v: Tensor, mask: Tensor, *, scale: float) -> Tensor:
    return (_scores(q, k) / scale + mask).softmax(-1) @ v


def _times_mask(q: Tensor, k: Tensor, v: Tensor, mask: Tensor, *, scale: float) -> Tensor:
    return (_scores(q, k) * scale + mask).softmax(-1) @ v


def _query_mask(q: Tensor, k: Tensor, v: Tensor, mask: Tensor, *, scale: float) -> Tensor:
    return (_scores(q * scale, k) + mask).softmax(-1) @ v


def _divided_fill(q: Tensor, k: Tensor, v: Tensor, mask: Tensor, *, scale: float) -> Tensor:
    return (_scores(q, k) / scale).masked_fill(mask, -torch.inf).softmax(-1) @ v


def _times_fill(q: Tensor, k: Tensor, v: Tensor, mask: Tensor, *, scale: float) -> Tensor:
    return (_scores(q, k) * scale).masked_fill(mask, -torch.inf).softmax(-1) @ v


def _plain_fill(q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
    return _scores(q, k).masked_fill(mask, -torch.inf).softmax(-1) @ v


def _times_where(q: Tensor, k: Tensor, v: Tensor, mask: Tensor, *, scale: float) -> Tensor:
    return torch.where(mask, _scores(q, k) * scale, -torch.inf).softmax(-1) @ v


def _divided_where(q: Tensor, k: Tensor, v: Tensor, mask: Tensor, *, scale: float) -> Tensor:
    return torch.where(mask, _scores(q, k) / scale, -torch.inf).softmax(-1) @ v


def _divided_dropout(q: Tensor, k: Tensor, v: Tensor, *, scale: float, p: float) -> Tensor:
    return functional.dropout((_scores(q, k) / scale).softmax(-1), p) @ v


def _times_dropout(q: Tensor, k: Tensor, v: Tensor, *, scale: float, p: float) -> Tensor:
    return functional.dropout((_scores(q, k) * scale).softmax(-1), p) @ v


def _divided_float(q: Tensor, k: Tensor, v: Tensor, *, scale: float) -> Tensor:
    return (_scores(q, k) / scale).float().softmax(-1).to(q.dtype) @ v


def _times_float(q: Tensor, k: Tensor, v: Tensor, *, scale: float) -> Tensor:
    return (_scores(q, k) * scale).float().softmax(-1).to(q.dtype) @ v


def _divided_float_mask(q: Tensor, k: Tensor, v: Tensor, mask: Tensor, *, scale: float) -> Tensor:
    return (_scores(q, k) / scale + mask).float().softmax(-1).to(q.dtype) @ v


def _times_float_mask(q: Tensor, k: Tensor, v: Tensor, mask: Tensor, *, scale: float) -> Tensor:
    return (_scores(q, k) * scale + mask).float().softmax(-1).to(q.dtype) @ v


def sdpa(*operands: Tensor, scale: float = 1.0, p: float = 0.0) -> Tensor:
    """Return `scaled_dot_product_attention` by the kernels that are right."""
    with sdpa_kernel(KERNELS):
        return functional.scaled_dot_product_attention(*operands, dropout_p=p, scale=scale)


class _AddedMask(torch.autograd.Function):
    """Attention with a mask that is added: the kernel forward, weights made again backward."""

    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor, mask: Tensor, scale: float) -> Tensor:
        ctx.save_for_backward(q, k, v, mask)
        ctx.scale = scale
        empty = (mask == -torch.inf).all(-1, keepdim=True)
        return sdpa(q, k, v, mask, scale=scale).masked_fill(empty, torch.nan)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        (gradient,), (q, k, v, mask) = gradients, ctx.saved_tensors
        scores = _scores(q, k) * ctx.scale + mask
        exact = torch.promote_types(scores.dtype, torch.float32)
        weights = scores.softmax(-1, dtype=exact)
        of_weights = (gradient @ v.transpose(-2, -1)).to(exact)
        of_scores = _of_softmax(of_weights, weights, -1, exact).to(q.dtype) * ctx.scale
        of_values = weights.to(q.dtype).transpose(-2, -1) @ gradient
        return of_scores @ k, of_scores.transpose(-2, -1) @ q, of_values, None, None


_of_softmax = torch.ops.aten._softmax_backward_data.default


def _with_empty_rows(out: Tensor, empty: Tensor, v: Tensor) -> Tensor:
    """Return attention with NaN for the rows that a mask empties.

    Args:
        out: Attention, with 0 there.
        empty: Which rows these are: like the mask, its last dimension 1.
        v: The values. All of their gradient is NaN where there is such a row: each is multiplied by
            a weight of that row. Gradients of scores are not: the mask is filled in.
    """
    if not out.requires_grad:
        return out.masked_fill(empty, torch.nan)
    some = empty.any(-2, keepdim=True)
    nothing = torch.zeros_like(some, dtype=v.dtype).masked_fill(some, torch.nan)
    return torch.where(empty, (v * nothing).sum(-2, keepdim=True), out)


def _by(q: Tensor, k: Tensor, v: Tensor, *, scale: float = 1.0, p: float = 0.0) -> Tensor:
    return sdpa(q, k, v, scale=scale, p=p)


def _add(q: Tensor, k: Tensor, v: Tensor, mask: Tensor, *, scale: float = 1.0) -> Tensor:
    return _AddedMask.apply(q, k, v, mask, scale)


def _keep(q: Tensor, k: Tensor, v: Tensor, mask: Tensor, *, scale: float = 1.0) -> Tensor:
    empty = mask.any(-1, keepdim=True).logical_not()
    out = sdpa(q, k, v, mask, scale=scale)
    return _with_empty_rows(out, empty, v)


def _fill(q: Tensor, k: Tensor, v: Tensor, mask: Tensor, *, scale: float = 1.0) -> Tensor:
    return _keep(q, k, v, ~mask, scale=scale)


def _over(replace: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """Return a replacement, with the same arguments, for scores over a scale."""

    @wraps(replace)
    def divided(*, scale: float, **others: Any) -> Tensor:
        return replace(scale=1 / scale, **others)

    return divided


FORMS = (
    Form("divided", _divided, _over(_by), None, SCALE),
    Form("times", _times, _by, None, SCALE),
    Form("query", _query, _by, None, SCALE),
    Form("plain", _plain, _by),
    Form("divided_mask", _divided_mask, _over(_add), "float", SCALE),
    Form("times_mask", _times_mask, _add, "float", SCALE),
    Form("query_mask", _query_mask, _add, "float", SCALE),
    Form("plain_mask", _plain_mask, _add, "float"),
    Form("divided_fill", _divided_fill, _over(_fill), "bool", SCALE),
    Form("times_fill", _times_fill, _fill, "bool", SCALE),
    Form("plain_fill", _plain_fill, _fill, "bool"),
    Form("divided_where", _divided_where, _over(_keep), "bool", SCALE),
    Form("times_where", _times_where, _keep, "bool", SCALE),
    Form("divided_float", _divided_float, _over(_by), None, SCALE, torch.float16),
    Form("times_float", _times_float, _by, None, SCALE, torch.float16),
    Form("divided_float_mask", _divided_float_mask, _over(_add), "float", SCALE, torch.float16),
    Form("times_float_mask", _times_float_mask, _add, "float", SCALE, torch.float16),
    Form("divided_dropout", _divided_dropout, _over(_by), None, DROPOUT, dropout=True),
    Form("times_dropout", _times_dropout, _by, None, DROPOUT, dropout=True),
)
"""More specific forms first: `plain` also matches scores that are scaled in another way."""
