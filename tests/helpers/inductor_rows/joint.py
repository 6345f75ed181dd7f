"""Rows of `joint_graph.py`, `misc_patterns.py`, `pad_mm.py` and `replace_random.py`."""

import torch

from tests.helpers.inductor_rows import Program, row, shows

aten = torch.ops.aten
RANDOM = {"config": {"replace_random.enabled": True}, "theirs_fires": False}


@shows(
    "joint_graph.pointless_view",
    "post_grad.view_default_noop",
    by="joint/remove_noops",
    theirs_fires=False,
    note="`remove_noop_ops` takes it there.",
)
def view_of_the_same_sizes() -> Program:
    return lambda x: aten.view(x, [4, 6]).sin(), [torch.randn(4, 6)]


@shows("joint_graph.pointless_view_pair", by="joint/simplify_views")
def views_there_and_back() -> Program:
    return lambda x: aten.view(aten.view(x * 2, [24]), [4, 6]).sin(), [torch.randn(4, 6)]


@shows("joint_graph.pointless_permute_pair", by="joint/simplify_views")
def permutes_there_and_back() -> Program:
    return lambda x: x.permute(1, 2, 0).permute(2, 0, 1).sin(), [torch.randn(2, 3, 4)]


@shows("joint_graph.pointless_convert", by="joint/simplify_casts")
def casts_there_and_back() -> Program:
    return lambda x: x.float().bfloat16() * 2, [torch.randn(8).bfloat16()]


@shows("joint_graph.constant_fold_uniform_value", by="joint/fold_uniform_values")
def uniform_values() -> Program:
    return lambda x: x + (torch.full((4,), 2.0) * 3), [torch.randn(4)]


@shows("joint_graph.scatter_upon_const_tensor", by="joint/scatter_to_where")
def scatter_on_zeros() -> Program:
    def f(index):
        return aten.scatter.value(torch.zeros(8, 5), 1, index, 2.0).sin()

    return f, [torch.randint(5, (8, 1))]


row(
    "joint_graph.bmm_to_mm",
    by="forward/split_products",
    note="On a CPU a `bmm` of one matrix is as fast as an `mm`.",
    gpu=True,
)
row(
    "joint_graph.fix_iota_device",
    by="forward/move_constructors",
    note="A GPU's index from the CPU.",
    gpu=True,
)
row(
    "joint_graph.canonicalize_aten_ir_passes",
    by="dispatch",
    note="The calls of `invoke_quant` stay as they are.",
)


@shows(
    "auto_chunker.core.chunk",
    by="joint/chunk_losses",
    note="Off by default, as in Inductor. Any loss of rows; fusion keeps the peak of the memory.",
    config={"chunk_losses.enabled": True},
    their_config={"auto_chunker.enable": True},
    theirs_fires=False,  # it replaces the graph: its metric counts it (`test_chunk_losses.py`)
    train=True,
)
def loss_of_many_classes() -> Program:
    def f(x, w, target):
        return torch.nn.functional.cross_entropy(x @ w, target)

    x, w = torch.randn(256, 4), torch.randn(4, 1100)
    return f, [x.requires_grad_(), w.requires_grad_(), torch.randint(1100, (256,))]


@shows("misc_patterns.*", by="joint/store_unique_indices")
def added_at_a_permutation() -> Program:
    def f(x, y):
        index = torch.randperm(x.shape[0])[: y.shape[0]]
        return torch.index_add(x, dim=0, source=y, index=index), index

    return f, [torch.randn(8, 4), torch.randn(3, 4)]


row("pad_mm._pad_mm_init", by="joint/pad_mm", note="Measured, on a GPU.", gpu=True)


@shows(
    "replace_random.replace_random",
    "replace_random.fuse_*",
    by="joint/replace_random",
    **RANDOM,
)
def random_numbers() -> Program:
    return lambda x: x + torch.rand(4), [torch.randn(4)]


@shows("replace_random.replace_randint", by="joint/replace_random", **RANDOM)
def random_integers() -> Program:
    return lambda x: x + torch.randint(0, 9, (4,)), [torch.randn(4)]
