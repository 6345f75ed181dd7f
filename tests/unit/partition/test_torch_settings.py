"""Settings of torch's partitioner (`torch._functorch.config`): obeyed, or left to that one."""

import logging

import pytest
import torch
import torch._functorch.config as settings
from torch._inductor.custom_graph_pass import CustomKnapsackSolver

from ctk.compiler.options.config import Config, patch, resolve
from ctk.compiler.partition.options import PartitionOptions
from ctk.compiler.rewriting.stage_passes import partition_options


def chain(x, w):
    for _ in range(4):
        x = torch.tanh(x @ w).exp().sin()
    return x


def saved_nbytes(**changes):
    """Return the bytes that the compiled forward of `chain` saves for backward."""
    torch.compiler.reset()
    x, w = (torch.rand(64, 64).div(64).requires_grad_() for _ in range(2))
    kept = {}

    def pack(tensor):
        kept[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
        return tensor

    with settings.patch(**changes), torch.autograd.graph.saved_tensors_hooks(pack, lambda t: t):
        result = torch.compile(chain, backend="ctk")(x, w)
    result.sum().backward()
    found = x.grad.clone()
    x.grad = None
    chain(x, w).sum().backward()
    torch.testing.assert_close(found, x.grad)
    return sum(kept.values())


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"activation_memory_budget": 0.25}, {"memory_budget": 0.25}),
        ({"activation_memory_budget_solver": "ilp"}, {"solver": "exact"}),
        ({"activation_memory_budget_solver": "dp_knapsack_sliding_hirschberg"}, {}),
        ({"ban_recompute_used_far_apart": False}, {"ban_used_far_apart": False}),
        ({"ban_recompute_long_fusible_chains": False}, {"ban_long_fusible_chains": False}),
        ({"ban_recompute_materialized_backward": False}, {"ban_materialized_backward": False}),
        ({"ban_recompute_not_in_allowlist": False}, {"ban_not_in_allow_list": False}),
        ({"ban_recompute_reductions": False}, {"ban_reduction": False}),
        ({"aggressive_recomputation": True}, {"aggressive_recomputation": True}),
    ],
)
def test_a_setting_becomes_an_option(changes, expected):
    with settings.patch(changes):
        assert partition_options(resolve(None)) == PartitionOptions(**expected)


def test_an_option_wins_over_a_setting():
    with settings.patch(activation_memory_budget=0.5), patch({"partition.memory_budget": 0.75}):
        assert partition_options(resolve(None)).memory_budget == 0.75
    assert resolve(None) == Config()


def test_a_budget_saves_less():
    everything = saved_nbytes()
    half = saved_nbytes(activation_memory_budget=0.5)
    least = saved_nbytes(activation_memory_budget=0.0)
    assert least < half < everything


@pytest.mark.parametrize(
    "name", ["recompute_views", "is_non_builtin_to_include", "treat_parameters_as_free_to_save"]
)
def test_other_settings_leave_the_graph_to_torchs_partitioner(name, caplog):
    value = not getattr(settings, name)
    with caplog.at_level(logging.INFO, logger="ctk.partition"):
        saved_nbytes(**{name: value})
    assert f"torch's own partitioner splits this graph: {name} is set" in caplog.text


def test_a_solver_of_the_user_is_called():
    calls = []

    class SaveAll(CustomKnapsackSolver):
        def __call__(self, memory, joint_graph, max_memory, node_info, banned):
            calls.append(len(memory))
            return list(range(len(memory))), []

        def uuid(self):
            return "save all"

    saved_nbytes(activation_memory_budget=0.5, activation_memory_budget_solver=SaveAll())
    assert calls


def test_a_budget_out_of_range_is_refused():
    with pytest.raises(Exception, match=r"memory_budget takes 0 .* to 1"):
        saved_nbytes(activation_memory_budget=1.5)
