"""Rows of `pre_grad.py` and `efficient_conv_bn_eval.py`."""

import torch
from torch import nn
from torch.nn import functional

from tests.helpers.inductor_rows import Program, row, shows

PERMUTES = {"their_config": {"permute_fusion": True}, "theirs_fires": False}


@shows(
    "pre_grad.linear_permute_fusion",
    by="pre_grad/fuse_permute",
    their_config=PERMUTES,
    theirs_fires=False,
)
def product_then_permuted() -> Program:
    def f(x, w, b):
        return functional.linear(x, w, b).permute(0, 2, 1).contiguous()

    return f, [torch.randn(2, 8, 4), torch.randn(6, 4), torch.randn(6)]


@shows(
    "pre_grad.permute_linear_fusion",
    by="pre_grad/fuse_permute",
    their_config=PERMUTES,
    theirs_fires=False,
)
def permuted_then_product() -> Program:
    def f(x, w, b):
        return functional.linear(x.permute(0, 2, 1).contiguous(), w, b)

    return f, [torch.randn(2, 4, 8), torch.randn(6, 4), torch.randn(6)]


@shows(
    "pre_grad.permute_matmul_fusion",
    by="pre_grad/fuse_permute",
    their_config=PERMUTES,
    theirs_fires=False,
)
def permuted_product() -> Program:
    def f(x, y):
        return torch.matmul(x.permute(0, 2, 1).contiguous(), y)

    return f, [torch.randn(2, 4, 8), torch.randn(2, 4, 6)]


row(
    "pre_grad.remove_identity",
    by="pre_grad/remove_identity",
    note="For graphs with modules (torch.fx); Dynamo leaves an `nn.Identity` out itself.",
)


def _normed() -> nn.Module:
    return nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8)).eval()


@shows(
    "pre_grad.fuse_conv_bn",
    by="pre_grad/fold_conv_batch_norm",
    note="There for graphs with modules only, of inference; Dynamo captures functions.",
    theirs_fires=False,
)
def conv_and_batch_norm() -> Program:
    return _normed(), [torch.randn(2, 3, 8, 8)]


@shows(
    "pre_grad.efficient_conv_bn_eval_pass",
    "efficient_conv_bn_eval.*",
    by="pre_grad/fold_conv_batch_norm",
    their_config={"efficient_conv_bn_eval_fx_passes": True},
    train=True,
)
def trained_conv_with_fixed_batch_norm() -> Program:
    return _normed(), [torch.randn(2, 3, 8, 8)]


row(
    "pre_grad.pre_grad_custom_pass",
    "joint_graph.joint_custom_pre_pass",
    "joint_graph.joint_custom_post_pass",
    "post_grad.post_grad_custom_pre_pass",
    "post_grad.post_grad_custom_post_pass",
    by="options",
    note="`custom_passes`, with a slot before and behind the passes of each stage.",
)
row(
    "pre_grad.fuse_split_linear_add_pass",
    "pre_grad.fuse_chunk_squeeze_cat_pass",
    "pre_grad.remove_reshape_pass",
    "pre_grad.*_aten",
    note="Tables of the option `is_predispatch`, for graphs of export before dispatch.",
)
