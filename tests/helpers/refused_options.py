"""The options of Inductor that a case may not set without trust, with the reasons of the review.

`is_harmless` refuses an unlisted option anyway. This list is for the tests alone: an option of the
installed torch that stands neither here nor in the tables of `inductor_options` has not been
reviewed.
"""

from collections.abc import Mapping

from ctk.toolkit.case.formats.plain_text import words

GROUPS: Mapping[str, str] = {
    "_collective": "collectives",
    "aot_inductor": "files, compilers and their flags",
    "aot_inductor_mode": "files",
    "aten_distributed_optimizations": "collectives; a profile to read",
    "auto_chunker": "unused by cases so far",
    "autoheuristic_collect": "writes measurements",
    "autoheuristic_use": "reads measurements",
    "cuda": "compilers, caches and libraries",
    "cutlass": "compilers, caches and libraries",
    "halide": "another compiler",
    "lookup_table": "a table to look up",
    "mtia": "another device",
    "rocm": "compilers and libraries",
    "test_configs": "torch's own tests",
    "trace": "writes files",
    "xpu": "compilers, caches and libraries",
}
"""Whole groups, `GROUP.option`, and the reason."""

REFUSED: Mapping[str, tuple[str, ...]] = {
    "names code, a file, an address or text that ends up in a command": words("""
    _fuse_ddp_communication_passes _post_fusion_custom_pass _pre_fusion_custom_pass
    add_pre_grad_passes autoheuristic_collect autoheuristic_log_path autoheuristic_use
    autotune_lookup_table cpp.cxx cpp.march cudagraph_policy cudagraph_unsafe_unbacked_ops
    custom_partitioner_fn custom_should_partition_ops disabled_passes enabled_metric_tables
    estimate_op_runtime external_matmul fx_passes_numeric_check global_cache_dir
    inductor_choices_class joint_custom_post_pass joint_custom_pre_pass layout_opt_default
    max_autotune_conv_backends max_autotune_conv_bwd_input_backends
    max_autotune_conv_bwd_weight_backends post_grad_custom_post_pass post_grad_custom_pre_pass
    pre_grad_custom_pass profile_bandwidth_output profile_bandwidth_regex remove_pre_grad_passes
    reorder_for_compute_comm_overlap_passes torchinductor_worker_logpath
    triton.debug_dump_kernel_inputs triton.proton_output_dir unsafe_marked_cacheable_functions
    worker_log_path
    """),
    "starts or steers processes, reads or writes caches": words("""
    _cache_config_factory_keys _cache_config_ignore_prefix _save_config_ignore
    bundle_triton_into_fx_graph_cache bundled_autotune_remote_cache cache_sdpa_constraint
    compile_worker_mode compile_worker_wait_timeout compile_worker_watchdog_interval_seconds
    cpp_cache_precompile_headers cpp_wrapper_build_separate
    enable_caching_generated_triton_templates file_lock_timeout keep_static_cubin_raw
    max_autotune_subproc_graceful_timeout_seconds max_autotune_subproc_result_timeout_seconds
    max_autotune_subproc_terminate_timeout_seconds non_blocking_remote_cache_write
    pipeline_max_autotune_gemm precompilation_timeout_seconds quiesce_async_compile_pool
    quiesce_async_compile_time remote_gemm_autotune_cache run_jit_post_compile_hook
    search_autotune_cache static_launch_user_defined_triton_kernels strict_static_cuda_launcher
    strict_static_triton_launcher triton.autotune_at_compile_time triton.store_cubin
    unsafe_skip_cache_dynamic_shape_guards use_fast_triton_launcher use_launch_metadata_schema
    use_static_cuda_launcher use_static_triton_launcher worker_start_method
    worker_suppress_logging
    """),
    "logs, profiles, measures or sleeps": words("""
    _profile_var autotune_cudagraph_benchmarking autotune_cudagraph_benchmarking_iters
    autotune_multi_device autotune_num_choices_displayed benchmark_combo_kernel
    benchmark_epilogue_fusion benchmark_fusion benchmark_harness benchmark_kernel
    benchmark_template_fusion collective_benchmark_nruns collective_benchmark_timeout
    combo_kernel_autotune_grouping combo_kernel_compile_time_autotune
    cpp.enable_kernel_context_guard cpp.enable_kernel_profile debug debug_fusion
    debug_index_asserts debug_ir_traceback developer_warnings disable_progress
    generate_intermediate_hooks incremental_autotune inductor_default_autotune_rep
    inductor_default_autotune_warmup log_tlparse max_autotune_report_choices_stats
    max_epilogue_benchmarked_choices max_template_fusion_benchmarked_choices profile_bandwidth
    profile_bandwidth_with_do_bench_using_profiling profiler_mark_wrapper_call
    reorder_for_peak_memory_debug runtime_estimations_mms_benchmark save_args
    sleep_sec_TESTING_ONLY triton.autotune_with_sample_inputs triton.cudagraph_or_error
    triton.cudagraph_trees_history_recording triton.cudagraph_trees_objgraph
    triton.debug_sync_graph triton.debug_sync_kernel triton.max_kernel_dump_occurrences
    triton.proton_group_by_sm triton.proton_per_cta_occupancy triton.proton_profiling
    triton.proton_split_invocations use_experimental_benchmarker use_torch_profiler_benchmarker
    verbose_progress warn_mix_layout
    """),
    "removes a check, or assumes what a check would find out": words("""
    assume_32bit_indexing assume_aligned_inputs assume_unaligned_fallback_output
    do_not_emit_runtime_assertions freezing_discard_parameters
    triton.cudagraph_support_input_mutation
    triton.divisible_by_16 triton.emit_pointer_range_32 triton.fast_path_cudagraph_asserts
    triton.force_cudagraph_sync triton.force_cudagraphs_warmup triton.skip_cudagraph_warmup
    triton.slow_path_cudagraph_asserts unsafe_ignore_unsupported_triton_autotune_args
    write_are_deterministic_algorithms_enabled
    """),
    "chooses a library or a compiler that may be looked for and imported": words("""
    _conv_default_backends cpp.vec_isa_ok cpu_backend cuda_backend cutedsl_enable_autotuning
    flydsl_enable_autotuning nvgemm_max_profiling_configs nvgemm_pdl nvgemm_supplement_configs
    nvgemm_swap_ab tpu_backend triton.autotune_cublasLt triton.enable_tlx_templates triton.tlx_mode
    triton_disable_device_detection xpu_backend
    """),
    "of programs on several devices": words("""
    _fuse_ddp_bucket_size _fuse_ddp_communication _micro_pipeline_tp
    bucket_all_gathers_bucket_mode bucket_all_gathers_fx
    bucket_all_gathers_fx_bucket_size_determinator bucket_all_reduces_fx
    bucket_all_reduces_fx_bucket_size_determinator bucket_reduce_scatters_bucket_mode
    bucket_reduce_scatters_fx bucket_reduce_scatters_fx_bucket_size_determinator cpu_gpu_bw
    decompose_shard_dim_alltoall dedup_reduce_scatters distributed_max_autotune_gemm
    inter_node_bw intra_node_bw min_overlap_ratio reorder_prefetch_limit
    """),
    "of torch itself": words("""
    TYPE_CHECKING _partitioned_scatter_default _raise_error_for_testing
    _realize_acc_reads_threshold_default _realize_opcount_threshold_default
    always_complex_memory_overlap_TESTING_ONLY autotune_fallback_to_aten
    check_stack_no_cycles_TESTING_ONLY force_disable_cudagraph_TESTING_ONLY is_nightly_or_source
    triton.disallow_failing_autotune_kernels_TESTING_ONLY wrap_inductor_compiled_regions
    """),
    "unused by cases so far": words("""
    combo_kernel_foreach_dynamic_shapes combo_kernel_max_distance combo_kernel_max_num_args
    combo_kernel_max_num_nodes combo_kernel_peak_memory_increase_gb
    combo_kernel_peak_memory_pct_threshold combo_kernel_per_subkernel_blocks
    combo_kernels_pointwise_only compute_all_bounds cpp.gemm_cache_blocking
    cpp.gemm_thread_factors cpp.use_two_step_variance_threshold enable_autograd_for_aot
    epilogue_fusion_user_defined_triton_kernel fx_wrapper max_autotune_allow_flexible_layouts
    max_autotune_flex_search_space max_autotune_prune_choices_based_on_shared_mem
    max_complex_pointwise_cat_inputs max_fusion_buffer_group_pairwise_attempts
    max_fusion_unique_io_buffers multi_kernel_hints partitioned_scatter_max_partitions
    partitioned_scatter_memory_budget partitioned_scatter_min_partitions
    partitioned_scatter_non_model_floor_bytes pre_grad_pass_timing
    realize_acc_reads_size_threshold realize_cpu_acc_reads_threshold
    realize_cpu_opcount_threshold runtime_triton_nan_asserts
    size_threshold_for_succ_based_strategy small_memory_access_threshold
    triton.cudagraph_capture_sizes triton.cudagraph_dynamic_shape_rerecord_limit
    triton.cudagraph_dynamic_shape_warn_limit triton.cudagraph_initial_mempool_allocation_gb
    triton.cudagraph_min_partition_size triton.cudagraph_partition_memory_budget
    triton.cudagraph_unexpected_rerecord_limit triton.decompose_k_threshold
    triton.dynamic_disable_pipelining triton.enable_pdl triton.enable_template_tma_store
    triton.enable_tma_load_for_template_epilogue triton.min_split_scan_rblock
    triton.mix_order_reduction_allow_multi_stages triton.mix_order_reduction_autotune_split_size
    triton.mix_order_reduction_initial_xblock triton.mix_order_reduction_max_reads
    triton.mix_order_reduction_non_strict_mode triton.mix_order_reduction_split_size
    triton.multi_kernel triton.num_decompose_k_splits triton.skip_l1_cache
    triton.transpose_discontiguous_tensor_descriptor triton.unique_user_kernel_names
    triton.use_two_step_variance_min_numel triton.use_two_step_variance_threshold
    triton_kernel_default_layout_constraint unbacked_symint_fallback
    """),
}
"""Other options, by the reason."""


def is_refused(name: str) -> bool:
    """Return whether an option was reviewed and refused."""
    group, _, option = name.partition(".")
    return bool(option and group in GROUPS) or any(name in names for names in REFUSED.values())
