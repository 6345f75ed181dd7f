"""Rows of `split_cat.py` and of the pass for the Gumbel max trick.

The programs are those of `tests/helpers/split_cat_programs.py`, by the pass of Inductor that an
option turns on.
"""

import torch

from tests.helpers.inductor_rows import Program, row, shows
from tests.helpers.split_cat_programs import PROGRAMS, inputs

FEW = {"threshold_to_cat": 2}
RULES = {
    "split_cat_pass": ("simplify_split_cat", "merge_split_cat_aten"),
    "unbind_stack_pass": ("merge_unbind_stack",),
    "merge_getitem_cat_pass": ("merge_getitem_cat",),
    "mutate_cat_pass": ("mutate_cat_node",),
    "split_cat_to_slices_pass": ("split_cat_to_slices",),
    "unbind_cat_to_view_pass": ("unbind_cat_to_view",),
    "split_stack_to_cats_pass": ("split_stack_to_cats",),
    "unbind_stack_to_slices_pass": ("unbind_stack_to_slices",),
    "move_reshape_out_of_split_stack_pass": ("move_reshape_out_of_split_stack",),
    "split_cat_aten_pass": ("merge_split_cat_aten",),
    "select_cat_aten_pass": ("merge_select_cat_aten",),
}
"""The functions of Inductor that its passes register."""


def fusions(name: str) -> dict[str, object]:
    """Return the options of Inductor for a pass, and for the one that it needs before it."""
    stage = "post_grad" if "aten" in name else "pre_grad"
    first = "normalization_aten_pass" if stage == "post_grad" else "normalization_pass"
    return {f"{stage}_fusion_options": {first: {}, name: FEW}}


def _program(function) -> Program:
    return function, inputs()


for function, name in PROGRAMS:
    theirs = [f"split_cat.{name}", *(f"split_cat.{each}" for each in RULES[name])]
    row(
        *theirs,
        by="forward/simplify_split_cat",
        program=lambda function=function: _program(function),
        name=function.__name__,
        their_config=fusions(name),
    )


@shows(
    "split_cat.merge_splits_pass",
    "split_cat.merge_splits",
    by=("pre_grad/simplify_torch_split_cat", "forward/simplify_split_cat"),
    their_config=fusions("merge_splits_pass"),
)
def split_of_a_split() -> Program:
    def f(x):
        a, b = torch.split(x, [4, 4], 1)
        c, d = torch.split(a, [2, 2], 1)
        return b.sin(), c.cos(), d.tan()

    return f, [torch.randn(3, 8)]


row(
    "split_cat.merge_split_squeeze",
    "split_cat.remove_split_with_size_one*",
    "split_cat.merge_unbind_stack_aten",
    "split_cat.unbind_stack_aten_pass",
    "split_cat.move_view_after_cat*",
    by="forward/simplify_split_cat",
    note="Inductor did nothing for the program of `unbind_stack_aten_pass`, and fails with that of "
    "`move_view_after_cat`.",
)
row(
    "split_cat.merge_stack_tahn_unbind_pass",
    by="forward/simplify_split_cat",
    note="Nothing is registered for it in torch 2.13.",
)
row(
    "split_cat.normalization_pass",
    "split_cat.normalization_aten_pass",
    "split_cat.normalize_*",
    by="pre_grad/normalize_calls",
    note="Off by default, since the passes of ctk read every form of a call.",
)
row("split_cat.pad_aten_mm_pass", "split_cat.shape_padding_multiplier", by="joint/pad_mm")
row(
    "split_cat.einsum_to_pointwise_pass",
    "split_cat.replace_einsum_to_pointwise",
    by="forward/decompose_products",
    note="Dispatch takes an `einsum` apart; its products are decomposed where that is faster.",
)


@shows(
    "apply_gumbel_max_trick.*",
    "pre_grad.apply_gumbel_max_trick_pass",
    by="joint/sample_by_gumbel_max",
    config={"sample_by_gumbel_max.enabled": True},
    theirs_fires=False,
    note="Off by default: a row with NaN or infinity gets another sample than in eager.",
)
def sample_of_a_softmax() -> Program:
    def f(logits):
        noise = torch.empty_like(logits).exponential_(1)
        return torch.argmax(torch.softmax(logits, -1) / noise, dim=-1, keepdim=True)

    return f, [torch.randn(4, 16)]
