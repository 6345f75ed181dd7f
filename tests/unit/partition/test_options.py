"""Options of the partition: through `Config`, checked, and obeyed by a compile."""

import pytest
import torch
from torch import fx, nn

from ctk import Config, compile_fx
from ctk.compiler.errors import ConfigError
from ctk.compiler.partition.options import PartitionOptions
from ctk.compiler.passes import PASSES
from ctk.compiler.rewriting.stage_passes import partition_options, select_passes


@pytest.mark.parametrize("name", ["partition", "joint/partition"])
def test_options_come_from_config(name):
    config = Config().patch({f"{name}.memory_budget": 0, f"{name}.solver": "exact"})
    select_passes(PASSES, config)
    assert partition_options(config) == PartitionOptions(memory_budget=0.0, solver="exact")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"partition.memory_budget": 1.5}, r"memory_budget takes 0 .* to 1 .*, not 1\.5"),
        ({"partition.memory_budget": -0.1}, "takes 0 "),
        ({"partition.memory_budget": "half"}, "takes float, not"),
        ({"partition.solver": "dq"}, "'greedy' or 'dp' or 'exact'"),
        ({"partition.memory_budgte": 1}, "did you mean 'memory_budget'"),
        ({"partitoin.memory_budget": 1}, "did you mean 'partition'"),
        ({"forward/partition.memory_budget": 1}, "unknown pass"),
    ],
)
def test_what_is_not_allowed_is_said_when_a_compile_starts(changes, message):
    with pytest.raises(ConfigError, match=message):
        compile_fx(fx.symbolic_trace(nn.Linear(2, 2)), (torch.ones(2),), changes)


@pytest.mark.parametrize("budget", [float("nan"), 2, -1])
def test_a_budget_is_between_0_and_1(budget):
    with pytest.raises(ConfigError, match="memory_budget"):
        PartitionOptions(memory_budget=budget)
