"""Inductor's options that ctk does not take, with the counterpart in ctk for each.

Every name of `torch._inductor.config` of the supported releases is here or in
`inductor_options.py`. `tests/unit/options` holds both against the installed torch.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Group:
    """Options with one counterpart.

    Attributes:
        counterpart: Options of ctk that serve the purpose, or why none is needed.
        names: The options by the parts of Inductor's configuration that have them, each with spaces
            between: `{"": "combo_kernels", "cuda. xpu.": "arch version"}`.
    """

    counterpart: str
    names: Mapping[str, str]

    def __iter__(self) -> Iterator[str]:
        for parts, names in self.names.items():
            for part in parts.split() or ("",):
                yield from (f"{part}{name}" for name in names.split())


GROUPS = (
    Group(
        "kernels.exact=true keeps the bits of eager, and without it kernels round as C and "
        "Triton do",
        {
            "": """
        _use_fp64_for_unbacked_floats batch_invariant emulate_precision_casts_on_saved_tensors
        strict_signed_zero use_fast_math
        """,
            "cpp.": """
        enable_floating_point_contract_flag enable_unsafe_math_opt_flag use_decompose_tanh
        use_two_step_variance_threshold
        """,
            "eager_numerics.": """
        disable_ftz division_rounding use_pytorch_libdevice
        """,
            "triton.": """
        codegen_upcast_to_fp32 use_two_step_variance_min_numel use_two_step_variance_threshold
        """,
        },
    ),
    Group(
        "triton.autotune=true times a few layouts of each kernel on the device, once for all "
        "processes",
        {
            "autoheuristic_collect.": """
        pad_mm
        """,
            "": """
        autoheuristic_log_path autotune_cudagraph_benchmarking autotune_cudagraph_benchmarking_iters
        autotune_fallback_to_aten autotune_in_subproc autotune_local_cache autotune_multi_device
        autotune_remote_cache bundled_autotune_remote_cache combo_kernel_autotune_grouping
        combo_kernel_compile_time_autotune combo_kernels_autotune
        coordinate_descent_check_all_directions coordinate_descent_search_radius
        dynamic_scale_rblock incremental_autotune inductor_default_autotune_rep
        inductor_default_autotune_warmup multi_kernel_hints remote_gemm_autotune_cache
        unsafe_ignore_unsupported_triton_autotune_args use_experimental_benchmarker
        use_torch_profiler_benchmarker
        """,
            "autoheuristic_use.": """
        pad_mm
        """,
            "triton.": """
        autotune_at_compile_time autotune_pointwise autotune_with_sample_inputs
        mix_order_reduction_autotune_split_size multi_kernel
        """,
        },
    ),
    Group(
        "kernels.cuda_graphs=true launches each graph of fixed sizes as a whole, without "
        "further settings",
        {
            "": """
        cudagraph_policy cudagraph_unsafe_unbacked_ops custom_should_partition_ops graph_partition
        """,
            "triton.": """
        cudagraph_capture_sizes cudagraph_dynamic_shape_rerecord_limit
        cudagraph_dynamic_shape_warn_limit cudagraph_initial_mempool_allocation_gb
        cudagraph_managed_input_rerecord_action cudagraph_managed_input_rerecord_limit
        cudagraph_min_partition_size cudagraph_or_error cudagraph_partition_memory_budget
        cudagraph_skip_dynamic_graphs cudagraph_support_input_mutation cudagraph_trees
        cudagraph_trees_generation_cloning cudagraph_trees_history_recording
        cudagraph_trees_objgraph cudagraph_unexpected_rerecord_limit fast_path_cudagraph_asserts
        force_cudagraph_sync force_cudagraphs_warmup reorder_for_reducing_graph_partitions
        skip_cudagraph_warmup slow_path_cudagraph_asserts
        """,
        },
    ),
    Group(
        "each rewrite is one of a pass: docs/passes.md has the options of passes, and "
        'disable=["NAME"] leaves one out',
        {
            "": """
        add_pre_grad_passes constant_and_index_propagation dce disabled_passes is_predispatch
        partitioned_scatter_enabled partitioned_scatter_force partitioned_scatter_max_partitions
        partitioned_scatter_memory_budget partitioned_scatter_min_contention_ratio
        partitioned_scatter_min_index_size partitioned_scatter_min_partitions
        partitioned_scatter_non_model_floor_bytes pre_grad_pass_timing remove_pre_grad_passes
        reorder_for_locality_in_training static_weight_shapes var_std_reduction_dedup
        """,
        },
    ),
    Group(
        "batch_linears.enabled=true and batch_parallel.enabled=true merge parallel layers; its "
        "other rewrites always run, as docs/passes.md lists",
        {
            "": """
        group_fusion post_grad_fusion_options pre_grad_fusion_options
        """,
        },
    ),
    Group(
        "the loop IR takes no passes of the user; custom_passes has the slots for passes on graphs",
        {
            "": """
        _post_fusion_custom_pass _pre_fusion_custom_pass
        """,
        },
    ),
    Group(
        "the options partition.NAME choose the split, and partition.algorithm=torch gives it "
        "to torch's partitioner",
        {
            "": """
        custom_partitioner_fn
        """,
        },
    ),
    Group(
        "strides are those of eager or of a kernel that needs none; pad_mm pads products, "
        "to_channels_last changes convolutions",
        {
            "": """
        assume_aligned_inputs assume_unaligned_fallback_output bw_outputs_user_visible
        cache_sdpa_constraint comprehensive_padding disable_padding_cpu
        expand_dimension_for_pointwise_nodes force_layout_optimization inplace_padding
        keep_output_stride pad_channels_last pad_dynamic_shapes pad_outputs padding_alignment_bytes
        padding_stride_threshold strict_output_strides triton_kernel_default_layout_constraint
        """,
        },
    ),
    Group(
        'plan_memory reuses the memory of dead values; disable=["plan_memory"] leaves it out',
        {
            "": """
        can_inplace_pad_graph_input memory_planning memory_pool reorder_for_peak_memory
        size_threshold_for_succ_based_strategy small_memory_access_threshold
        """,
        },
    ),
    Group(
        'fuse has no settings: it merges kernels that share memory or loops; disable=["fuse"]'
        " leaves it out",
        {
            "": """
        aggressive_fusion benchmark_combo_kernel benchmark_fusion combo_kernel_allow_mixed_sizes
        combo_kernel_foreach_dynamic_shapes combo_kernel_max_distance combo_kernel_max_num_args
        combo_kernel_max_num_nodes combo_kernel_peak_memory_increase_gb
        combo_kernel_peak_memory_pct_threshold combo_kernel_per_subkernel_blocks combo_kernels
        combo_kernels_pointwise_only delay_realize_cheap_outputs force_pointwise_cat
        fusion_memory_timeline_peak_memory_increase_gb
        fusion_memory_timeline_peak_memory_pct_threshold loop_index_inversion_in_fusion
        loop_ordering_after_fusion loop_reindexing_after_fusion max_complex_pointwise_cat_inputs
        max_fusion_buffer_group_pairwise_attempts max_fusion_size max_fusion_unique_io_buffers
        max_pointwise_cat_inputs min_overlap_ratio pick_loop_orders prologue_fusion
        realize_acc_reads_size_threshold realize_acc_reads_threshold realize_cpu_acc_reads_threshold
        realize_cpu_opcount_threshold realize_opcount_threshold realize_opusers_threshold
        realize_reads_threshold score_fusion_memory_threshold unroll_reductions_threshold
        """,
            "cpp.": """
        max_horizontal_fusion_size
        """,
            "triton.": """
        mix_order_reduction mix_order_reduction_allow_multi_stages
        mix_order_reduction_initial_xblock mix_order_reduction_max_reads
        mix_order_reduction_non_strict_mode mix_order_reduction_split_size nested_reduction
        tiling_prevents_pointwise_fusion tiling_prevents_reduction_fusion
        """,
        },
    ),
    Group(
        "replace_random.enabled=true draws in kernels, from one seed for each call; without "
        "it eager draws",
        {
            "": """
        align_random_eager use_rand4x
        """,
        },
    ),
    Group(
        "an operator without a kernel is a call of eager, and codegen=eager makes every "
        "operator one",
        {
            "": """
        always_keep_tensor_constants compute_all_bounds enable_auto_functionalized_v2
        fallback_embedding_bag_byte_unpack selective_decompose unbacked_symint_fallback
        write_are_deterministic_algorithms_enabled
        """,
        },
    ),
    Group(
        "products, convolutions and attention are calls of torch's libraries, which choose "
        "their kernels; tune_products.enabled=tune measures two of them for products on a CPU, "
        "triton.autotune tunes the other kernels",
        {
            "": """
        _conv_default_backends autotune_lookup_table autotune_num_choices_displayed b2b_gemm_pass
        benchmark_epilogue_fusion benchmark_template_fusion bmm_shared_a conv_1x1_as_mm
        cutedsl_enable_autotuning distributed_max_autotune_gemm
        enable_caching_generated_triton_templates epilogue_fusion_first
        epilogue_fusion_user_defined_triton_kernel epilogue_fusion_with_atomic_add external_matmul
        flydsl_enable_autotuning force_fuse_int_mm_with_mul inductor_choices_class
        keep_addmm_fused_for_half_dtypes max_autotune_allow_flexible_layouts
        max_autotune_conv_backends max_autotune_conv_bwd_input_backends
        max_autotune_conv_bwd_weight_backends max_autotune_flex_search_space max_autotune_gemm
        max_autotune_gemm_backends max_autotune_gemm_search_space
        max_autotune_prune_choices_based_on_shared_mem max_autotune_report_choices_stats
        max_epilogue_benchmarked_choices max_template_fusion_benchmarked_choices mixed_mm_choice
        nvgemm_max_profiling_configs nvgemm_pdl nvgemm_supplement_configs nvgemm_swap_ab
        online_softmax pipeline_max_autotune_gemm search_autotune_cache use_mixed_mm
        """,
            "autoheuristic_collect.": """
        mixed_mm
        """,
            "autoheuristic_use.": """
        mixed_mm
        """,
            "cpp.": """
        enable_grouped_gemm_template gemm_cache_blocking gemm_max_k_slices gemm_thread_factors
        """,
            "cuda.": """
        nvgemm_max_profiling_configs
        """,
            "lookup_table.": """
        check_src_hash table
        """,
            "triton.": """
        autotune_cublasLt decompose_k_threshold enable_flex_tdm enable_host_side_tma enable_pdl
        enable_persistent_tma_matmul enable_template_autows enable_template_tma_store
        enable_tma_load_for_template_epilogue native_matmul num_decompose_k_splits tlx_mode
        """,
            "cuda. xpu. cutlass.": """
        binary_remote_cache_force_write compile_opt_level cutlass_backend_min_gemm_size cutlass_dir
        cutlass_dynamic_cluster_fallback cutlass_dynamic_cluster_shape cutlass_enabled_ops
        cutlass_epilogue_fusion_enabled cutlass_hash_with_compile_cmd cutlass_instantiation_level
        cutlass_max_profiling_configs cutlass_max_profiling_swizzle_options
        cutlass_op_allowlist_regex cutlass_op_denylist_regex cutlass_prescreening cutlass_tma_only
        enable_caching_codegen enable_debug_info generate_test_runner upload_to_binary_remote_cache
        use_binary_remote_cache use_fast_math
        """,
        },
    ),
    Group(
        "kernels are C for a CPU and Triton for a GPU; codegen=NAME chooses another generator",
        {
            "": """
        cpu_backend cuda_backend tpu_backend triton_disable_device_detection xpu_backend
        """,
            "cuda.": """
        arch autotune_tunableop_dynamic_dims_wildcard cuda_cxx enable_cuda_lto enable_ptxas_info
        version
        """,
            "halide.": """
        asserts cpu_target debug gpu_target scan_kernels scheduler_cpu scheduler_cuda
        """,
            "mtia.": """
        disable_welford_reduction
        """,
            "rocm.": """
        arch ck_dir ck_max_profiling_configs ck_supported_arch ck_tile_max_profiling_configs
        compile_opt_level contiguous_threshold flush_denormals generate_test_runner is_debug
        kBatch_sweep n_max_profiling_configs origami origami_topk print_kernel_resource_usage
        rocm_home save_temps split_k_threshold use_fast_math use_preselected_instances
        """,
            "xpu.": """
        arch oneapi_root version
        """,
        },
    ),
    Group(
        "the C compiler, which CC names, vectorises kernels for this processor; c.flags adds "
        "flags, torch.set_num_threads sets the threads",
        {
            "cpp.": """
        cxx dynamic_threads enable_kernel_context_guard enable_loop_tail_vec
        enable_tiling_heuristics fallback_scatter_reduce_sum force_inline_kernel march
        min_chunk_size no_redundant_loops simdlen threads use_constexpr_for_int_array
        use_small_dequant_buffer vec_isa_ok
        """,
            "": """
        cpp_cache_precompile_headers disable_cpp_codegen
        """,
        },
    ),
    Group(
        "the layout of a Triton kernel follows from its sizes; triton.chunk and "
        "triton.row_limit change it, triton.autotune times others",
        {
            "": """
        assume_32bit_indexing keep_static_cubin_raw min_num_split split_reductions
        static_launch_user_defined_triton_kernels strict_static_cuda_launcher
        strict_static_triton_launcher use_fast_triton_launcher use_launch_metadata_schema
        use_static_cuda_launcher use_static_triton_launcher
        """,
            "triton.": """
        coalesce_tiling_analysis cooperative_reductions decompose_sort_ops dense_indexing
        divisible_by_16 dynamic_disable_pipelining emit_pointer_range_32
        force_cooperative_reductions max_tiles min_split_scan_rblock persistent_reductions
        prefer_nd_tiling scalar_accumulators skip_l1_cache spill_threshold tile_reductions
        transpose_discontiguous_tensor_descriptor use_block_ptr use_tensor_descriptor
        """,
        },
    ),
    Group(
        "ctk.aot_compile writes packages that Python and C programs call, and its arguments "
        "are their only options",
        {
            "aot_inductor.": """
        allow_stack_allocation aoti_shim_library aoti_shim_library_path
        autotune_offload_constants_min_device_fraction autotune_per_kernel_alloc check_lowerbound
        check_upperbound compile_wrapper_opt_level cross_target_platform custom_op_libs
        custom_ops_to_c_shims debug_compile debug_intermediate_value_printer debug_symbols
        dump_aoti_minifier dynamic_linkage embed_kernel_binary emit_multi_arch_kernel
        enable_frame_pointer enable_line_tables enable_lto filtered_kernel_names force_mmap_weights
        link_libtorch metadata model_name_for_generated_files output_path package
        package_constants_in_so package_constants_on_disk_format package_cpp_only precompile_headers
        presets raise_error_on_ignored_optimization repro_level serialized_in_spec
        serialized_out_spec use_consts_asm_build use_minimal_arrayref_interface
        use_runtime_constant_folding weight_use_caching_allocator
        """,
            "aot_inductor_mode.": """
        compile_standalone
        """,
            "": """
        cpp_wrapper cpp_wrapper_build_separate enable_autograd_for_aot fx_wrapper
        """,
        },
    ),
    Group(
        "passes that change collectives are listed in docs/passes.md with their options; "
        'disable=["NAME"] leaves one out',
        {
            "_collective.": """
        auto_select one_shot_all_reduce_threshold_bytes
        """,
            "": """
        _fuse_ddp_bucket_size _fuse_ddp_communication _fuse_ddp_communication_passes
        _micro_pipeline_tp bucket_all_gathers_bucket_mode
        bucket_all_gathers_fx_bucket_size_determinator bucket_all_reduces_fx
        bucket_all_reduces_fx_bucket_size_determinator bucket_reduce_scatters_bucket_mode
        bucket_reduce_scatters_fx bucket_reduce_scatters_fx_bucket_size_determinator
        collective_benchmark_nruns collective_benchmark_timeout cpu_gpu_bw
        decompose_shard_dim_alltoall dedup_reduce_scatters estimate_op_runtime inter_node_bw
        intra_node_bw reorder_for_compute_comm_overlap_passes
        reorder_prefetch_limit runtime_estimations_mms_benchmark
        """,
            "aten_distributed_optimizations.": """
        allow_comms_decompositions bucket_exposed_first bucket_mode bucket_only_internode_comms
        collective_bucketing collective_estimator compute_estimator compute_overlap_multipler
        custom_runtime_estimation enable_fusion_regions enable_low_contention_collectives
        enable_overlap_scheduling enable_simple_overlap insert_overlap_deps
        log_final_collectives_estimations low_contention_all_gather_ce_multicast
        low_contention_min_bytes_per_rank low_contention_skip_overlap_check max_coll_distance
        max_compute_pre_fetch max_in_flight_gb max_memory_increase_gb max_memory_increase_ratio
        overlap_scheduling_autofix_cycles pre_bucketing_fsdp_collectives
        pre_bucketing_fsdp_collectives_bucket_cap_mb
        pre_bucketing_fsdp_collectives_max_bucket_cap_mb
        pre_bucketing_fsdp_collectives_min_bucket_cap_mb
        pre_bucketing_fsdp_collectives_saturation_calibration_multiplier
        pre_bucketing_fsdp_collectives_verbose prioritize_bucketing_during_scheduling
        profile_guided_estimations_profile_path spmd_check spmd_mismatch
        """,
        },
    ),
    Group(
        "whole graphs are kept in one cache: cache=false turns it off, CTK_CACHE_DIR and "
        "CTK_CACHE_SIZE set its place and size",
        {
            "": """
        bundle_triton_into_fx_graph_cache file_lock_timeout fx_graph_remote_cache global_cache_dir
        non_blocking_remote_cache_write unsafe_marked_cacheable_functions
        unsafe_skip_cache_dynamic_shape_guards
        """,
        },
    ),
    Group(
        "the kernels of a graph are compiled in parallel in this process; "
        "kernels.background=true lets calls run in eager meanwhile",
        {
            "": """
        compile_threads compile_worker_mode compile_worker_wait_timeout
        compile_worker_watchdog_interval_seconds log_tlparse
        max_autotune_subproc_graceful_timeout_seconds max_autotune_subproc_result_timeout_seconds
        max_autotune_subproc_terminate_timeout_seconds precompilation_timeout_seconds
        quiesce_async_compile_pool quiesce_async_compile_time torchinductor_worker_logpath
        worker_log_path worker_start_method worker_suppress_logging
        """,
        },
    ),
    Group(
        "ctk run FILE.py compares calls with eager (CTK_CHECK, CTK_CHECK_WHEN=nan), "
        "verify=true checks graphs, c.sanitize and triton.debug check accesses",
        {
            "": """
        alignment_asserts alignment_asserts_inputs assert_indirect_indexing debug_index_asserts
        do_not_emit_runtime_assertions fx_passes_numeric_check nan_asserts
        runtime_triton_nan_asserts scalar_asserts size_asserts unsafe_skip_scalar_range_asserts
        """,
            "triton.": """
        debug_sync_graph debug_sync_kernel
        """,
        },
    ),
    Group(
        "CTK_DUMP=FOLDER keeps the graph after every stage and pass, and ctk show CASE prints"
        " graphs and kernels",
        {
            "": """
        comment_origin debug debug_fusion debug_ir_traceback disable_progress
        generate_intermediate_hooks kernel_name_max_ops reorder_for_peak_memory_debug
        verbose_progress warn_mix_layout wrap_inductor_compiled_regions
        """,
            "cpp.": """
        descriptive_names
        """,
            "trace.": """
        debug_dir debug_log dot_graph_shape draw_orig_fx_graph enabled fx_graph fx_graph_transformed
        graph_diagram graph_diagram_format info_log ir_post_fusion ir_pre_fusion
        log_autotuning_results log_url_for_graph_xform orig_fx_graph_diagram_format output_code
        provenance_tracking_level provenance_tracking_max_events provenance_tracking_to_timeline
        save_real_tensors upload_tar
        """,
            "triton.": """
        debug_dump_kernel_inputs descriptive_names max_kernel_dump_occurrences store_cubin
        unique_kernel_names unique_user_kernel_names
        """,
        },
    ),
    Group(
        "ctk show CASE --times lists the seconds of passes and kernels; torch.profiler shows "
        "the calls",
        {
            "": """
        _profile_var annotate_training benchmark_harness benchmark_kernel enabled_metric_tables
        profile_bandwidth profile_bandwidth_output profile_bandwidth_regex
        profile_bandwidth_with_do_bench_using_profiling profiler_mark_wrapper_call
        """,
            "cpp.": """
        enable_kernel_profile
        """,
            "trace.": """
        compile_profile
        """,
            "triton.": """
        proton_group_by_sm proton_output_dir proton_per_cta_occupancy proton_profiling
        proton_split_invocations
        """,
        },
    ),
    Group(
        "it serves the tests or the internals of Inductor",
        {
            "": """
        _cache_config_factory_keys _cache_config_ignore_prefix _partitioned_scatter_default
        _raise_error_for_testing _realize_acc_reads_threshold_default
        _realize_opcount_threshold_default _save_config_ignore check_stack_no_cycles_TESTING_ONLY
        developer_warnings force_disable_cudagraph_TESTING_ONLY is_nightly_or_source
        layout_opt_default run_jit_post_compile_hook save_args sleep_sec_TESTING_ONLY
        """,
            "cpp.": """
        inject_log1p_bug_TESTING_ONLY inject_relu_bug_TESTING_ONLY
        """,
            "test_configs.": """
        assume_bucketing_reduces_latency autotune_choice_desc_regex autotune_choice_name_regex
        bisect_keep_custom_backend_for_inductor bisect_pre_grad_graph distort_benchmarking_result
        force_custom_op_decomposition force_extern_kernel_in_multi_template
        force_filter_reduction_configs force_no_impl_grouping
        graphsafe_rng_func_ignores_fallback_random max_flex_configs max_mm_configs
        runtime_triton_dtype_assert runtime_triton_shape_assert static_cpp_dtype_assert
        track_memory_lifecycle use_libtorch
        """,
            "triton.": """
        disallow_failing_autotune_kernels_TESTING_ONLY inject_relu_bug_TESTING_ONLY
        """,
        },
    ),
)
