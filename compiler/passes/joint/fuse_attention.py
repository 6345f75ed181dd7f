"""Replace attention that is written out by the fused kernel for it.

Rule: `softmax(mask(scale(q @ k.mT))) @ v -> scaled_dot_product_attention(q, k, v, ...)`, for each
form of `attention_forms.py`, in inference and, with the gradients of `q`, `k` and `v`, in training.

The replacement is `F.scaled_dot_product_attention` traced with operands like the match's: the ATen
kernel that torch itself chooses for them (`_scaled_dot_product_flash_attention_for_cpu`, `_flash_`
or `_efficient_attention`; not cuDNN's, see the forms), and in training its backward kernel with it,
because the joint graph holds both. With an additive mask, backward computes the weights again.
If torch chooses the unfused composite (dropout on the CPU, an odd head size on
CUDA), nothing is gained, and the rule does not fire.

Preconditions: the scores, the probabilities and their gradients have no other user, so that a mask
that needs a gradient does not match; nothing writes to an operand in between; no tensor is empty;
an additive mask has the dtype of `q` (a bool one has another meaning); the results have the old
types; a copy keeps their strides. A fully masked row is NaN, as written, and so are its gradients.
Reassociates: the softmax is computed in blocks.

Dropout in a kernel keeps `p` and draws other numbers than eager does: only with `draws_otherwise`.

Source: torch/_inductor/fx_passes/fuse_attention.py, whose forms include layouts, and which leaves 0
in empty rows. Here `q`, `k` and `v` match any node, and the check compares the dtype, so that one
form covers all of them.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch
from torch.fx import GraphModule

from ctk.compiler.fx.types import tensor_of, type_text
from ctk.compiler.passes.joint import eliminate_common_subexpressions, remove_noops, simplify_views
from ctk.compiler.passes.joint.attention_forms import FORMS, Form
from ctk.compiler.patterns.expression import Match
from ctk.compiler.patterns.generated import add_generated
from ctk.compiler.patterns.insert import fwd_only, joint_fwd_bwd
from ctk.compiler.patterns.matcher import LazyTable, RuleTable, apply_rules
from ctk.compiler.patterns.replacement import Replacement
from ctk.compiler.rewriting.base import Pass
from ctk.compiler.rewriting.rewriter import Rewriter
from ctk.compiler.torch_compat.fake import fake_tensors as fake

HALVES = (torch.float16, torch.bfloat16)
BEFORE = (remove_noops.PASS, eliminate_common_subexpressions.PASS, simplify_views.PASS)


def replacements(*, draws_otherwise: bool = False) -> list[Replacement]:
    """Return the replacements of the pass: inference first, then training."""
    return [
        _replacement(form, training=training, draws_otherwise=draws_otherwise)
        for training in (False, True)
        for form in FORMS
        if training or not form.dropout
    ]


def _replacement(form: Form, *, training: bool, draws_otherwise: bool) -> Replacement:
    return Replacement(
        f"attention_{form.name}_{'training' if training else 'inference'}",
        form.search,
        form.replace,
        form.example_inputs(training=training),
        joint_fwd_bwd if training else fwd_only,
        extra_check=partial(_refusal, form, draws_otherwise),
        check_replacement=_is_fused,
        scalar_workaround=form.scalars,
        before=BEFORE,
    )


def _refusal(form: Form, draws_otherwise: bool, match: Match) -> str | None:
    if form.dropout and not draws_otherwise:
        return (
            "dropout in a kernel draws other random numbers than eager does; "
            "fuse_attention.draws_otherwise=True allows it"
        )
    scale = match.bound.get("scale", 1.0)
    if not isinstance(scale, (int, float)) or not math.isfinite(scale):
        return f"the scale is {scale}"
    tensors = {name: tensor_of(value) for name, value in match.bound.items()}
    query, mask = tensors["q"], tensors.get("mask")
    if query is not None and form.dtype is torch.float16 and query.dtype not in HALVES:
        return f"the softmax of {type_text(query)} is not wider than its operands"
    wanted = query.dtype if form.mask == "float" and query is not None else torch.bool
    if mask is not None and mask.dtype != wanted:
        return f"the mask is {type_text(mask)}, not {wanted}"
    for name, tensor in tensors.items():
        sizes = () if tensor is None else tensor.shape
        if any(not fake.is_symbolic(size) and size == 0 for size in sizes):
            return f"{name} is empty"
    return None


def _is_fused(module: GraphModule) -> str | None:
    if any("_scaled_dot_product_" in str(node.target) for node in module.graph.nodes):
        return None
    return "torch has no fused kernel for these operands"


def _fill(draws_otherwise: bool) -> Callable[[RuleTable, tuple[str, ...]], None]:
    """Return a function that fills a table: one pattern for all devices."""

    def fill(table: RuleTable, devices: tuple[str, ...]) -> None:
        for replacement in replacements(draws_otherwise=draws_otherwise):
            add_generated(replacement, table)

    return fill


RULES = LazyTable(_fill(draws_otherwise=False))
ALL_RULES = LazyTable(_fill(draws_otherwise=True))
SOFTMAX = torch.ops.aten._softmax.default


@dataclass(frozen=True, slots=True)
class FuseAttention(Pass):
    """Replace attention that is written out by the fused kernel for it.

    Attributes:
        draws_otherwise: Also fuse dropout, although the kernels draw other random numbers than
            eager from the same seed.
    """

    name = "fuse_attention"
    numerics = "reassociates"
    draws_otherwise: bool = False

    def run(self, rewriter: Rewriter) -> None:
        if rewriter.graph.find_nodes(op="call_function", target=SOFTMAX):
            apply_rules(rewriter, (ALL_RULES if self.draws_otherwise else RULES).get())


PASS = FuseAttention()
