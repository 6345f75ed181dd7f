"""Inductor's options that a case may set without trust: a reviewed allow-list.

Listed are options that change only the generated code of this process. Refused is every option that
names a program, a function, a module, a file or an address (`cpp.cxx`, `*_custom_*_pass`,
`trace.*`, `*_dir`, caches), starts processes, writes files, logs or profiles, concerns
`aot_inductor`, CUTLASS or ROCm installations, or removes a check of memory accesses. New options of
torch are refused until they are listed. Reviewed: torch 2.11 to 2.15; a test compares all options
of the installed torch with these tables and with a list of refused ones.
"""

import re
from collections.abc import Mapping
from typing import cast

from ctk.toolkit.case.formats.plain_text import words
from ctk.toolkit.case.trust.ctk_options import is_number

SWITCHES = frozenset(
    words("""
    _use_fp64_for_unbacked_floats aggressive_fusion align_random_eager allow_buffer_reuse
    always_keep_tensor_constants annotate_training apply_gumbel_max_trick b2b_gemm_pass batch_fusion
    batch_invariant bmm_shared_a bw_outputs_user_visible can_inplace_pad_graph_input combo_kernels
    comment_origin comprehensive_padding constant_and_index_propagation conv_1x1_as_mm
    coordinate_descent_check_all_directions coordinate_descent_tuning cpp.dynamic_threads
    cpp.enable_concat_linear cpp.enable_grouped_gemm_template cpp.enable_loop_tail_vec
    cpp.enable_tiling_heuristics cpp.enable_unsafe_math_opt_flag cpp.fallback_scatter_reduce_sum
    cpp.force_inline_kernel cpp.no_redundant_loops cpp.use_constexpr_for_int_array
    cpp.use_decompose_tanh cpp.use_small_dequant_buffer cpp.weight_prepack cpp_wrapper dce
    decompose_mem_bound_mm delay_realize_cheap_outputs deterministic disable_cpp_codegen
    disable_padding_cpu dynamic_scale_rblock eager_numerics.disable_ftz
    eager_numerics.division_rounding eager_numerics.use_pytorch_libdevice
    efficient_conv_bn_eval_fx_passes emulate_precision_casts
    emulate_precision_casts_on_saved_tensors enable_auto_functionalized_v2
    enable_linear_binary_folding epilogue_fusion epilogue_fusion_first
    epilogue_fusion_with_atomic_add expand_dimension_for_pointwise_nodes fallback_by_default
    fallback_embedding_bag_byte_unpack fallback_random force_fuse_int_mm_with_mul
    force_layout_optimization force_pointwise_cat force_same_precision force_shape_pad freezing
    graph_partition group_fusion implicit_fallbacks inplace_buffers inplace_padding is_predispatch
    joint_graph_constant_folding keep_addmm_fused_for_half_dtypes keep_output_stride
    layout_optimization loop_index_inversion_in_fusion loop_ordering_after_fusion
    loop_reindexing_after_fusion max_autotune max_autotune_gemm max_autotune_pointwise
    memory_planning nan_asserts online_softmax optimize_scatter_upon_const_tensor pad_channels_last
    pad_dynamic_shapes pad_outputs partitioned_scatter_enabled partitioned_scatter_force
    pattern_matcher permute_fusion pick_loop_orders prologue_fusion reorder_for_compute_comm_overlap
    reorder_for_locality reorder_for_locality_in_training reorder_for_peak_memory
    selective_decompose shape_padding split_cat_fx_passes split_reductions static_weight_shapes
    strict_output_strides strict_signed_zero triton.autotune_pointwise
    triton.coalesce_tiling_analysis triton.codegen_upcast_to_fp32 triton.cooperative_reductions
    triton.cudagraph_skip_dynamic_graphs triton.cudagraph_trees triton.cudagraphs
    triton.decompose_sort_ops triton.dense_indexing triton.enable_flex_tdm
    triton.enable_host_side_tma triton.enable_persistent_tma_matmul triton.enable_template_autows
    triton.force_cooperative_reductions triton.mix_order_reduction triton.native_matmul
    triton.nested_reduction triton.persistent_reductions triton.prefer_nd_tiling
    triton.reorder_for_reducing_graph_partitions triton.scalar_accumulators triton.tile_reductions
    triton.tiling_prevents_pointwise_fusion triton.tiling_prevents_reduction_fusion
    triton.unique_kernel_names triton.use_block_ptr triton.use_tensor_descriptor use_dce
    use_fast_math use_joint_graph_passes use_mixed_mm use_post_grad_passes use_pre_grad_passes
    use_rand4x var_std_reduction_dedup
    """)
)
"""Options that are on or off."""

NUMBERS: Mapping[str, tuple[float, float]] = {
    "combo_kernels_autotune": (0, 2),
    "combo_kernel_allow_mixed_sizes": (0, 2),
    "coordinate_descent_search_radius": (1, 8),
    "fusion_memory_timeline_peak_memory_increase_gb": (0, 2**31),
    "fusion_memory_timeline_peak_memory_pct_threshold": (0, 2**31),
    "kernel_name_max_ops": (0, 100),
    "max_fusion_size": (1, 4096),
    "max_pointwise_cat_inputs": (0, 256),
    "min_num_split": (0, 1024),
    "padding_alignment_bytes": (1, 4096),
    "padding_stride_threshold": (0, 2**31),
    "partitioned_scatter_min_contention_ratio": (0, 2**31),
    "partitioned_scatter_min_index_size": (0, 2**31),
    "realize_acc_reads_threshold": (0, 4096),
    "realize_opcount_threshold": (0, 4096),
    "realize_opusers_threshold": (0, 4096),
    "realize_reads_threshold": (0, 4096),
    "score_fusion_memory_threshold": (0, 2**31),
    "unroll_reductions_threshold": (0, 64),
    "cpp.gemm_max_k_slices": (0, 64),
    "cpp.max_horizontal_fusion_size": (0, 1024),
    "cpp.min_chunk_size": (1, 2**20),
    "cpp.simdlen": (0, 2048),
    "cpp.threads": (-1, 256),
    "triton.cudagraph_managed_input_rerecord_limit": (0, 1024),
    "triton.max_tiles": (1, 3),
    "triton.spill_threshold": (0, 1024),
}
"""Numbers, with the least and the greatest that is harmless."""

_BUGS = ("compile_error", "runtime_error", "accuracy")
_NAMES = ("torch", "original_aten", "inductor_node")

CHOICES: Mapping[str, tuple[str, ...]] = {
    "max_autotune_gemm_search_space": ("DEFAULT", "EXHAUSTIVE"),
    "memory_pool": ("none", "intermediates", "outputs", "combined"),
    "mixed_mm_choice": ("default", "triton", "aten", "heuristic"),
    "numerics": ("default", "strict_pointwise", "strict_reduction", "strict"),
    "cpp.descriptive_names": _NAMES,
    "triton.cudagraph_managed_input_rerecord_action": ("copy", "skip"),
    "triton.cudagraph_trees_generation_cloning": ("user_visible",),
    "triton.descriptive_names": _NAMES,
}
"""Options whose type in torch is a choice of words."""

WORDS: Mapping[str, tuple[tuple[str, ...], str]] = {
    "cpp.inject_relu_bug_TESTING_ONLY": (_BUGS, "compared with these words; plants torch's bug"),
    "cpp.inject_log1p_bug_TESTING_ONLY": (_BUGS, "compared with these words; plants torch's bug"),
    "triton.inject_relu_bug_TESTING_ONLY": (_BUGS, "compared with these words; plants torch's bug"),
    "cpp.enable_floating_point_contract_flag": (
        ("off", "on", "fast"),
        "goes into the compiler's command line: only the words of -ffp-contract",
    ),
}
"""Options whose type in torch is any text: the texts that are harmless, and why."""

GEMM_BACKENDS = frozenset({"ATEN", "TRITON", "CPP"})
"""`max_autotune_gemm_backends` without the libraries that would be looked for and imported."""

FUSIONS = ("pre_grad_fusion_options", "post_grad_fusion_options")
"""Tables of fusions, by names that torch looks up in a table of its own, with numbers."""

ONLY: Mapping[str, object] = {
    "autotune_in_subproc": False,
    "autotune_local_cache": False,
    "autotune_remote_cache": False,
    "compile_threads": 1,
    "force_disable_caches": True,
    "fx_graph_cache": False,
    "fx_graph_remote_cache": False,
    "alignment_asserts": True,
    "alignment_asserts_inputs": False,
    "assert_indirect_indexing": True,
    "scalar_asserts": True,
    "size_asserts": True,
    "unsafe_skip_scalar_range_asserts": False,
}
"""Options with one harmless value: without processes and caches, with checks of memory accesses."""


def is_harmless(key: str, value: object) -> bool:
    """Return whether an option of Inductor may have this value without trust."""
    name = key.replace("-", "_")
    if name in SWITCHES:
        return isinstance(value, bool)
    if name in NUMBERS:
        return is_number(value, *NUMBERS[name])
    if name in CHOICES:
        return isinstance(value, str) and value in CHOICES[name]
    if name in WORDS:
        return isinstance(value, str) and value in WORDS[name][0]
    if name == "max_autotune_gemm_backends":
        return isinstance(value, str) and GEMM_BACKENDS.issuperset(value.split(","))
    if name in FUSIONS:
        return _are_fusions(value)
    return name in ONLY and type(value) is type(ONLY[name]) and value == ONLY[name]


def _are_fusions(value: object) -> bool:
    fusions = cast("dict[object, object]", value) if isinstance(value, dict) else None
    return fusions is not None and all(
        isinstance(options, dict) and _is_name(name) and _are_numbers(options)
        for name, options in fusions.items()
    )


def _are_numbers(options: dict[object, object]) -> bool:
    return all(
        _is_name(key) and (isinstance(each, bool) or is_number(each, -(2**31), 2**31))
        for key, each in options.items()
    )


def _is_name(text: object) -> bool:
    return isinstance(text, str) and re.fullmatch(r"\w{1,100}", text) is not None
