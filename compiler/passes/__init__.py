"""The passes of each stage, in the order in which they run and are bisected.

To add a pass: one file in the stage's folder with `PASS = ...`, and one line here.
"""

import sys
from collections.abc import Mapping

from ctk.compiler.observe import Stage
from ctk.compiler.passes.freezing import (
    concat_linear,
    fold_batch_norm,
    fold_binary,
    fuse_post_ops,
    fuse_quantized,
    prepack_convolution,
    prepack_linear,
    prepack_quantized,
    prepack_recurrent,
    promote_dequantize,
    recover_linear,
    view_to_reshape,
    weight_only,
)
from ctk.compiler.passes.joint import (
    chunk_losses,
    eliminate_common_subexpressions,
    eliminate_dead_code,
    fold_constants,
    fold_uniform_values,
    fuse_attention,
    pad_mm,
    remove_noops,
    replace_random,
    sample_by_gumbel_max,
    scatter_to_where,
    simplify_casts,
    simplify_views,
    store_unique_indices,
    to_channels_last,
)
from ctk.compiler.passes.post_grad import (
    batch_parallel,
    bucket_gathers,
    bucket_reductions,
    decompose_products,
    fuse_addmm,
    move_constructors,
    order_for_locality,
    overlap_collectives,
    reinplace,
    reinplace_operators,
    reuse_reductions,
    simplify_slices,
    simplify_split_cat,
    split_products,
    tune_products,
)
from ctk.compiler.passes.pre_grad import (
    batch_linears,
    fold_conv_batch_norm,
    fuse_permute,
    normalize_calls,
    remove_identity,
    remove_inference_dropout,
    simplify_torch_split_cat,
)
from ctk.compiler.patterns.matcher import LazyTable, RuleTable
from ctk.compiler.rewriting.base import Pass

PRE_GRAD: tuple[Pass, ...] = (
    normalize_calls.PASS,
    remove_identity.PASS,
    remove_inference_dropout.PASS,
    simplify_torch_split_cat.PASS,
    fold_conv_batch_norm.PASS,
    fuse_permute.PASS,
    batch_linears.PASS,
)

JOINT: tuple[Pass, ...] = (
    remove_noops.PASS,
    fold_uniform_values.PASS,
    fold_constants.PASS,
    eliminate_common_subexpressions.PASS,
    simplify_views.PASS,
    simplify_casts.PASS,
    chunk_losses.PASS,
    eliminate_dead_code.PASS,
    store_unique_indices.PASS,
    scatter_to_where.PASS,
    fuse_attention.PASS,
    pad_mm.PASS,
    sample_by_gumbel_max.PASS,
    replace_random.PASS,
    to_channels_last.PASS,
)

POST_GRAD: tuple[Pass, ...] = (
    move_constructors.PASS,
    remove_noops.PASS,
    simplify_split_cat.PASS,
    simplify_slices.PASS,
    batch_parallel.PASS,
    split_products.PASS,
    tune_products.PASS,
    fuse_addmm.PASS,
    decompose_products.PASS,
    reuse_reductions.PASS,
    eliminate_common_subexpressions.PASS,
    eliminate_dead_code.PASS,
    order_for_locality.PASS,
    bucket_gathers.PASS,
    bucket_reductions.PASS,
    overlap_collectives.PASS,
    reinplace.PASS,
    reinplace_operators.PASS,
)

FREEZING: tuple[Pass, ...] = (
    recover_linear.PASS,
    weight_only.PASS,
    fold_batch_norm.PASS,
    fold_binary.PASS,
    concat_linear.PASS,
    promote_dequantize.PASS,
    view_to_reshape.PASS,
    to_channels_last.PASS,
    prepack_quantized.PASS,
    prepack_linear.PASS,
    tune_products.PASS,
    prepack_convolution.PASS,
    prepack_recurrent.PASS,
    fuse_post_ops.PASS,
    fuse_quantized.PASS,
    fold_constants.PASS,
    eliminate_common_subexpressions.PASS,
    eliminate_dead_code.PASS,
)

PASSES: Mapping[Stage, tuple[Pass, ...]] = {
    "pre_grad": PRE_GRAD,
    "joint": JOINT,
    "forward": POST_GRAD,
    "backward": POST_GRAD,
    "frozen": FREEZING,
}


def rule_tables() -> Mapping[str, RuleTable]:
    """Return the tables `RULES` of the modules of passes, by the name of the pass."""
    found: dict[str, RuleTable] = {}
    for each in dict.fromkeys(each for stage in PASSES.values() for each in stage):
        table = getattr(sys.modules[type(each).__module__], "RULES", None)
        if isinstance(table, LazyTable):
            table = table.get()
        if isinstance(table, RuleTable):
            found[each.name] = table
    return found
