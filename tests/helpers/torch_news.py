"""The names in reviewed tables of Inductor that a release of torch has added or removed.

For such a table a test asks of each entry whether the installed torch should have it
(`is_expected`), and of each name of the installed torch whether the table has it. So a new release
is read as a difference.
"""

from collections.abc import Mapping

import torch

from ctk.compiler.torch_compat.versions import release_of
from ctk.toolkit.case.formats.plain_text import words

ADDED: Mapping[tuple[int, int], frozenset[str]] = {
    (2, 12): frozenset(
        words("""
        _cache_config_factory_keys align_random_eager bucket_all_gathers_bucket_mode
        bucket_reduce_scatters_bucket_mode cache_sdpa_constraint cpp.use_two_step_variance_threshold
        cudagraph_policy delay_realize_cheap_outputs do_not_emit_runtime_assertions
        eager_numerics.use_pytorch_libdevice epilogue_fusion_user_defined_triton_kernel
        fuse_offset_creation_pass keep_addmm_fused_for_half_dtypes min_overlap_ratio
        pre_grad_pass_timing spmd_check triton.cudagraph_min_partition_size
        triton.decompose_sort_ops
        """)
    ),
    (2, 13): frozenset(
        words("""
        _conv_default_backends _realize_acc_reads_threshold_default
        _realize_opcount_threshold_default batch_invariant chain_random_ops_ordering
        combo_kernel_autotune_grouping combo_kernel_max_distance combo_kernel_max_num_nodes
        combo_kernel_peak_memory_increase_gb combo_kernel_peak_memory_pct_threshold
        compile_worker_wait_timeout cpp.march decomp_comms dedup_reduce_scatters
        emulate_precision_casts_on_saved_tensors epilogue_fusion_with_atomic_add
        fix_auto_functionalized_dtype_views force_disable_cudagraph_TESTING_ONLY
        incremental_autotune keep_static_cubin_raw loop_reindexing_after_fusion
        max_autotune_conv_bwd_input_backends max_autotune_conv_bwd_weight_backends
        max_complex_pointwise_cat_inputs nvgemm_supplement_configs realize_cpu_acc_reads_threshold
        realize_cpu_opcount_threshold replace_collectives_with_low_contention
        triton.cudagraph_partition_memory_budget triton.dynamic_disable_pipelining
        triton.emit_pointer_range_32 triton.enable_tma_load_for_template_epilogue
        triton.mix_order_reduction_max_reads triton.nested_reduction
        triton.use_two_step_variance_min_numel triton.use_two_step_variance_threshold
        use_fast_triton_launcher use_launch_metadata_schema use_torch_profiler_benchmarker
        """)
    ),
    (2, 14): frozenset(
        words("""
        _partitioned_scatter_default autotune_cudagraph_benchmarking
        combo_kernel_compile_time_autotune compile_worker_watchdog_interval_seconds
        cpp.enable_kernel_context_guard decompose_shard_dim_alltoall numerics nvgemm_swap_ab
        partitioned_scatter_force partitioned_scatter_min_contention_ratio
        partitioned_scatter_min_index_size partitioned_scatter_non_model_floor_bytes
        realize_opusers_threshold reorder_for_locality_in_training respecialize_current_device
        strict_output_strides strict_signed_zero triton.cudagraph_trees_generation_cloning
        triton.enable_host_side_tma triton.enable_template_autows triton.tlx_mode
        """)
    ),
    (2, 15): frozenset(
        words("""
        alignment_asserts_inputs autotune_cudagraph_benchmarking_iters benchmark_template_fusion
        bmm_shared_a compile_worker_mode deduplicate_wait_tensors flydsl_enable_autotuning
        force_disable_caches
        fusion_memory_timeline_peak_memory_increase_gb
        fusion_memory_timeline_peak_memory_pct_threshold max_template_fusion_benchmarked_choices
        nvgemm_pdl slice_scatter_chunking strict_static_triton_launcher
        triton.cudagraph_dynamic_shape_rerecord_limit
        triton.cudagraph_initial_mempool_allocation_gb
        triton.cudagraph_managed_input_rerecord_action
        triton.cudagraph_managed_input_rerecord_limit triton.enable_flex_tdm
        triton.scalar_accumulators unsafe_skip_scalar_range_asserts use_rand4x
        use_static_triton_launcher var_std_reduction_dedup
        """)
    ),
}
"""Options and passes, by the first release that has them."""

REMOVED: Mapping[tuple[int, int], frozenset[str]] = {
    (2, 12): frozenset(
        {"autoheuristic_collect", "autoheuristic_use", "triton.enable_tlx_templates"}
    ),
    (2, 13): frozenset(
        words("""
        always_complex_memory_overlap_TESTING_ONLY force_same_precision reinplace_fsdp_all_gather
        remove_fsdp2_unsharded_param_graph_input_usage
        """)
    ),
    (2, 14): frozenset({"partitioned_scatter_memory_budget"}),
    (2, 15): frozenset({"_cache_config_factory_keys"}),
}
"""Options and passes, by the first release without them."""


def is_expected(name: str) -> bool:
    """Return whether the installed torch should have an entry of a reviewed table."""
    release = release_of(torch.__version__)[:2]
    is_later = any(name in names for added, names in ADDED.items() if release < added)
    is_gone = any(name in names for removed, names in REMOVED.items() if release >= removed)
    return not (is_later or is_gone)
