"""The names in reviewed tables of Inductor that a release of torch has added or removed.

For such a table a test asks of each entry whether the installed torch should have it
(`is_expected`), and of each name of the installed torch whether the table has it. So a new release
is read as a difference.
"""

from collections.abc import Mapping

import torch

from ctk.compiler.torch_compat.versions import release_of
from ctk.toolkit.case.formats.plain_text import words

OLDEST_REVIEWED = (2, 13)

ADDED: Mapping[tuple[int, int], frozenset[str]] = {
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
    (2, 14): frozenset({"partitioned_scatter_memory_budget"}),
    (2, 15): frozenset({"_cache_config_factory_keys"}),
}
"""Options, by the first release without them."""


def is_expected(name: str) -> bool:
    """Return whether the installed torch should have an entry of a reviewed table."""
    release = release_of(torch.__version__)[:2]
    is_later = any(name in names for added, names in ADDED.items() if release < added)
    is_gone = any(name in names for removed, names in REMOVED.items() if release >= removed)
    return is_reviewed() and not (is_later or is_gone)


def is_reviewed() -> bool:
    """Return whether the tables were compared with a torch as old as the installed one."""
    return release_of(torch.__version__) >= OLDEST_REVIEWED
