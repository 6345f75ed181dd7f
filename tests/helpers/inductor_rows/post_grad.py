"""Rows of `post_grad.py`, `decompose_mem_bound_mm.py` and `reduced_atomic_contention.py`."""

import torch
from torch import Tensor

from tests.helpers.inductor_rows import Program, row, shows

aten = torch.ops.aten
END = 2**63 - 1
NOOPS = "post_grad.remove_noop_ops"


@torch.library.custom_op("inductor_rows::add_one_", mutates_args={"x"})
def add_one_(x: Tensor) -> None:
    x.add_(1)


@shows(
    "post_grad.mm_plus_mm",
    by="forward/fuse_addmm",
    note="There only with `max_autotune`, as a kernel that was measured.",
    theirs_fires=False,
)
def sum_of_products() -> Program:
    def f(a, b, c, d):
        return a @ b + c @ d

    return f, [torch.randn(64, 64) for _ in range(4)]


@shows("post_grad.pointless_cumsum_replacement", by="joint/fold_constants")
def cumsum_of_ones() -> Program:
    return lambda x: x + torch.ones(4, 6).cumsum(1), [torch.randn(4, 6)]


@shows("post_grad.cat_slice_cat", by="forward/simplify_split_cat")
def cat_of_a_part_of_cat() -> Program:
    def f(x, y):
        z = torch.cat([x, y], 1)
        return torch.cat([z, z[:, 0:4]], 1)

    return f, [torch.randn(2, 4), torch.randn(2, 6)]


@shows(
    "post_grad.splitwithsizes_cat_replace",
    by=("pre_grad/simplify_torch_split_cat", "forward/simplify_split_cat"),
)
def split_then_cat() -> Program:
    return lambda x: torch.cat(torch.split(x * 2, [2, 4], 1), 1).sin(), [torch.randn(3, 6)]


@shows("post_grad.cat_splitwithsizes_replace", by="forward/simplify_split_cat")
def cat_then_split() -> Program:
    def f(x, y):
        a, b = torch.split(torch.cat([x, y], 1), [2, 4], 1)
        return a.sin(), b.cos()

    return f, [torch.randn(3, 2), torch.randn(3, 4)]


row(
    "post_grad.unfuse_bias_add_to_pointwise",
    by="forward/split_products",
    note="On a CPU `addmm` takes at most as long (0.91 to 1.07 with a gelu behind it).",
    gpu=True,
)


@shows("post_grad.addmm", by="forward/fuse_addmm")
def product_and_bias() -> Program:
    return lambda x, w, b: x @ w + b, [torch.randn(8, 8), torch.randn(8, 8), torch.randn(8)]


@shows(NOOPS, "joint_graph.remove_noop_ops", "post_grad.slice_noop", by="joint/remove_noops")
def whole_slice() -> Program:
    return lambda x: aten.slice.Tensor(x * 2, 0, 0, END).sin(), [torch.randn(4)]


@shows("post_grad.slice_scatter_noop", NOOPS, by="forward/simplify_slices")
def whole_slice_scatter() -> Program:
    def f(x, y):
        return aten.slice_scatter.default(x, y * 2, 0, 0, END).sin()

    return f, [torch.randn(4), torch.randn(4)]


@shows("post_grad.repeat_noop", NOOPS, by="joint/remove_noops")
def repeat_once() -> Program:
    return lambda x: (x * 2).repeat(1, 1).sin(), [torch.randn(4, 3)]


@shows("post_grad.constant_pad_nd", NOOPS, by="joint/remove_noops")
def pad_by_nothing() -> Program:
    return lambda x: aten.constant_pad_nd(x * 2, [0, 0]).sin(), [torch.randn(4, 3)]


@shows("post_grad.convert_element_type_noop", NOOPS, by="joint/remove_noops")
def cast_to_the_same() -> Program:
    def f(x):
        return torch.ops.prims.convert_element_type(x * 2, torch.float32).sin()

    return f, [torch.randn(4, 3)]


@shows("post_grad.device_put_noop", NOOPS, by="joint/remove_noops")
def put_on_the_same_device() -> Program:
    def f(x):
        return torch.ops.prims.device_put(x * 2, torch.device("cpu")).sin()

    return f, [torch.randn(4, 3)]


@shows("post_grad.int_noop", NOOPS, by="joint/remove_noops")
def ceil_of_integers() -> Program:
    return lambda x: torch.ceil(x * 2) + 1, [torch.arange(4)]


@shows("post_grad.pow_noop", NOOPS, by="joint/remove_noops")
def first_power() -> Program:
    return lambda x: aten.pow.Tensor_Scalar(x * 2, 1).sin(), [torch.randn(4, 3)]


@shows("post_grad.cat_noop", NOOPS, by="pre_grad/simplify_torch_split_cat")
def cat_of_one() -> Program:
    return lambda x: torch.cat([x * 2]).sin(), [torch.randn(4, 3)]


@shows("post_grad.view_dtype_noop", NOOPS, by="joint/remove_noops")
def view_of_the_same_dtype() -> Program:
    return lambda x: aten.view.dtype(x * 2, torch.float32).sin(), [torch.randn(4, 3)]


@shows("post_grad.true_noop", NOOPS, by="joint/remove_noops")
def clone() -> Program:
    return lambda x: (x * 2).clone().sin(), [torch.randn(4, 3)]


@shows("post_grad.register_partial_reduction_pattern", by="forward/reuse_reductions")
def maximum_and_maxima_of_rows() -> Program:
    return lambda x: (x.amax(), x.amax(1, keepdim=True)), [torch.randn(64, 64)]


@shows("post_grad.reorder_for_locality", by="forward/order_for_locality")
def late_use() -> Program:
    def f(x, y):
        early, product = x.sin(), (y @ y).cos()
        return product.sum() * 2, early.sum() + 1

    return f, [torch.randn(16, 16), torch.randn(16, 16)]


@shows("post_grad.reinplace_inplaceable_ops", by="forward/reinplace", config={"codegen": "eager"})
def written_rows() -> Program:
    def f(x, rows, y):
        z = x * 2
        z[rows] = y
        return z

    return f, [torch.randn(16, 16), torch.tensor([1, 3]), torch.randn(2, 16)]


@shows(
    "post_grad.decompose_auto_functionalized",
    "post_grad.fix_auto_functionalized_dtype_views",
    "post_grad.decompose_triton_kernel_wrapper_functional",
    by="forward/reinplace_operators",
)
def operator_that_writes() -> Program:
    def f(x):
        y = x * 2
        add_one_(y)
        return y

    return f, [torch.randn(4)]


@shows("post_grad.remove_assert_ops", by="joint/remove_noops")
def asserted_dtype() -> Program:
    def f(x):
        aten._assert_tensor_metadata(x, None, None, torch.float32)
        return x.sin()

    return f, [torch.randn(4)]


@shows(
    "decompose_mem_bound_mm.*",
    "split_cat.decompose_mm_pass",
    by="forward/decompose_products",
    config={"decompose_products.enabled": "always"},
    their_config={"post_grad_fusion_options": {"decompose_mm_pass": {}}},
    theirs_fires=False,
    note="By default for sizes that measured faster.",
)
def thin_product() -> Program:
    return lambda x, y: (x @ y).sin(), [torch.randn(20480, 5), torch.randn(5, 2)]


@shows("post_grad.decompose_scan_to_while_loop", by="code generation", theirs_fires=False)
def scanned() -> Program:
    from torch._higher_order_ops import scan

    def step(carry, x):
        return carry + x, carry * x

    return lambda x: scan(step, torch.zeros(4), x), [torch.randn(5, 4)]


@shows("post_grad.decompose_map_to_while_loop", by="code generation", theirs_fires=False)
def mapped() -> Program:
    from torch._higher_order_ops import map as map_over

    return lambda x: map_over(lambda y: y.sin() + 1, x), [torch.randn(5, 4)]


row(
    "post_grad.remove_profiler_ops",
    by="dispatch",
    note="Dynamo leaves `record_function` out; the operators stay where a program calls them.",
)
row("post_grad.stable_sort", by="dispatch", note="The rewriter keeps the order of a graph valid.")
row("post_grad.lazy_init", by="lowering", note="Softmax in one sweep of the loop IR.", gpu=True)
row("post_grad.chain_random_ops_ordering", by="lowering", note="Random operators keep their order.")
row("post_grad.move_constructors_to_cuda", by="forward/move_constructors", gpu=True)
row(
    "post_grad.partitioned_scatter_optimization",
    "reduced_atomic_contention.*",
    note="For atomics of a GPU, off by default; `store_unique_indices` avoids them where it can.",
    gpu=True,
)


row(
    "b2b_gemm.*",
    note="Off by default; a Triton kernel for two products, for a GPU.",
    gpu=True,
)
row("pre_grad.group_batch_fusion_passes", by="pre_grad/batch_linears")
