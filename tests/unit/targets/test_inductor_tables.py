"""The tables of the Inductor target, held to the installed torch: a new torch is a difference."""

import pytest

from ctk.compiler.torch_compat.inductor import inductor_api as inductor
from ctk.compiler.torch_compat.inductor.inductor_steps import before_freezing, steps
from ctk.toolkit.case.formats.plain_text import words
from ctk.toolkit.targets.inductor.compile_record import EXACT_PASSES
from ctk.toolkit.targets.inductor.lowering import SWITCHES
from ctk.toolkit.targets.inductor.options import COMPARABLE, accepts
from ctk.toolkit.targets.inductor.target import TARGET, TRIALS
from tests.helpers.inductor_sources import announced_passes, plain_calls
from tests.helpers.torch_news import is_expected

REASSOCIATING = frozenset(
    words("""
    apply_gumbel_max_trick_pass bucket_all_gathers bucket_all_reduce bucket_reduce_scatters
    concat_linear_woq_int4 constant_fold constant_fold_uniform_value
    convert_conv_weights_to_channels_last decomp_comms dedup_reduce_scatters
    efficient_conv_bn_eval_pass eliminate_duplicate_packed_nodes fuse_conv_bn fuse_ddp_communication
    fuse_offset_creation_pass fuse_seed_creation_pass fx_graph_cse group_batch_fusion_passes
    grouped_gemm_pass linear_permute_fusion mark_mixed_dtype_allowed_computation_ops
    micro_pipeline_tp_pass overlap_scheduling partitioned_scatter_optimization permute_linear_fusion
    permute_matmul_fusion recover_original_precision_folded_computation_ops
    reinplace_fsdp_all_gather remove_identity replace_collectives_with_low_contention
    replace_params_with_constants
    """)
)
"""Passes that were read and may round otherwise, or were not found to be exact."""

OF_THE_USER = frozenset(
    words("""
    joint_custom_post_pass joint_custom_pre_pass post_grad_custom_post_pass
    post_grad_custom_pre_pass pre_grad_custom_pass
    """)
)

NO_PASSES = {
    "FakeTensorUpdater": "reads",
    "GraphTransformObserver": "announces",
    "ShapeProp": "reads",
    "get_all_devices": "reads",
    "spmd_check": "reads",
    "remove_fsdp2_unsharded_param_graph_input_usage": "of programs on several devices",
    "_run_pre_dispatch_passes": "announces its passes",
    "fuse_fx": "announces its passes",
    "replace_random_passes": "tables of patterns, and announced passes",
    "B2B_GEMM_PASS.apply": "a table of patterns",
    "early_patterns.apply": "a table of patterns",
    "pattern_matcher_pass.apply": "a table of patterns",
    "stable_topological_sort": "snapshots are sorted, so that it changes none",
    "chunk": "off by default; raises to decline, so that it stays unannounced",
}
"""Calls of a stage on its graph that are not passes to name, and why."""


def step_names() -> set[str]:
    return {step.name for step in (before_freezing(), *steps())}


def test_the_numerics_of_each_pass_were_reviewed() -> None:
    reviewed = EXACT_PASSES | REASSOCIATING
    assert not EXACT_PASSES & REASSOCIATING
    found = announced_passes() | step_names()
    assert found - reviewed == OF_THE_USER
    assert {name for name in reviewed if is_expected(name)} <= found


def test_each_plain_call_of_a_stage_is_a_step_or_no_pass() -> None:
    expected = {name for name in NO_PASSES if is_expected(name)}
    assert plain_calls() - step_names() == expected


@pytest.mark.parametrize("name", sorted({*COMPARABLE, *(trial.option for trial in TRIALS)}))
def test_an_option_of_the_target_exists_and_takes_its_value(name: str) -> None:
    known = inductor.known_options()
    if name not in known:
        assert not is_expected(name), f"torch has no {name}"
        return
    values = [trial.value for trial in TRIALS if trial.option == name]
    assert all(accepts(value, known[name][1]) for value in values)


def test_an_option_is_tried_once() -> None:
    tried = [trial.option for trial in TRIALS]
    assert len(tried) == len(set(tried))
    assert {switch.option for switch in SWITCHES} <= set(tried)


def test_an_option_that_another_one_fixes_is_not_tried() -> None:
    if "numerics" not in inductor.known_options():
        pytest.skip("torch has `numerics` since 2.14")
    tried = {trial.option for trial in TARGET.trials({"numerics": "strict"})}
    assert "numerics" not in tried
    fixed = inductor.implied_options({**inductor.option_values(), "numerics": "strict"})
    assert not fixed & tried
    if fixed:  # torch 2.14 has `numerics` without implications
        assert "emulate_precision_casts" in fixed
        assert "emulate_precision_casts" in {trial.option for trial in TARGET.trials({})}


@pytest.mark.parametrize("name", ["benchmark_epilogue_fusion", "max_epilogue_benchmarked_choices"])
def test_an_old_name_of_an_option_is_an_option(name: str) -> None:
    TARGET.check_config({name: inductor.known_options()[name][0]})
