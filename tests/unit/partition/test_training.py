"""Results, gradients and state of training are eager's bit for bit, however a graph is split."""

import copy
from collections.abc import Mapping

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ctk.compiler.backend import ctk
from ctk.compiler.partition import split
from ctk.compiler.partition.options import PartitionOptions
from ctk.compiler.torch_compat.aot.partition import run_with_rng_state
from tests.helpers.joint_graphs import BY_NAME, SAMPLES, Calls, Sample, joint_of

DEFAULT = {"partition.algorithm": "default"}
BUDGETS = (0.0, 0.25, 0.5, 0.75)


def trained(sample: Sample, options: Mapping[str, object] | None) -> list[Tensor | None]:
    """Return results, gradients and state after two steps; in eager if there are no options."""
    torch.manual_seed(3)
    torch.compiler.reset()
    model, inputs = sample.model(), sample.inputs()
    called = model
    if options is not None:
        config = {"codegen": "eager", "disable": sample.without, **options}
        called = torch.compile(model, backend=ctk, dynamic=sample.dynamic, options=config)
    found: list[Tensor | None] = []
    for _ in range(2):
        results = called(*inputs)
        results = results if isinstance(results, tuple) else (results,)
        sum(result.square().sum() for result in results).backward()
        found += [*results, *(value.grad for value in (*inputs, *model.parameters()))]
        found = [None if each is None else each.detach().clone() for each in found]
    return [*found, *(copy.deepcopy(buffer) for buffer in model.buffers()), torch.rand(1)]


def assert_equal(found: list[Tensor | None], expected: list[Tensor | None]) -> None:
    for a, b in zip(found, expected, strict=True):
        assert (a is None) == (b is None)
        assert a is None or torch.equal(a, b), (a, b)


SLOW = ("lstm", "mixture", "causal", "embedding")


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=pytest.mark.slow) if n in SLOW else n for n in BY_NAME]
)
def test_training_is_eagers_bit_for_bit(name):
    assert_equal(trained(BY_NAME[name], {}), trained(BY_NAME[name], None))


@pytest.mark.parametrize(
    "name",
    [
        *("dropout", "dynamic_sizes", "overwritten_buffer", "checkpoint"),
        *(
            pytest.param(name, marks=pytest.mark.slow)
            for name in ("mlp", "batch_norm", "encoder", "dynamic", "aliased_inputs", "tied")
        ),
    ],
)
def test_the_default_partition_too(name):
    assert_equal(trained(BY_NAME[name], DEFAULT), trained(BY_NAME[name], None))


@pytest.mark.parametrize("budget", [0.0, 0.5])
@pytest.mark.parametrize("name", ["dropout", "overwritten_buffer"])
def test_with_a_budget_too(name, budget):
    sample = BY_NAME[name]
    assert_equal(trained(sample, {"partition.memory_budget": budget}), trained(sample, None))


LARGE = Sample(
    "large_dropout",
    lambda: Calls(
        lambda self, x: self.b(F.gelu(F.dropout(self.a(F.dropout(x, 0.3)), 0.5, inplace=True))),
        a=nn.Linear(64, 256),
        b=nn.Linear(256, 4),
    ),
    lambda: (torch.randn(512, 64, requires_grad=True),),
    without=("tune_products",),
)


@pytest.mark.parametrize("budget", [0.0, 0.5])
def test_numbers_drawn_again_are_the_same(budget):
    """A state of a generator is less than a mask of 512 rows, so it is saved."""
    joint = joint_of(LARGE.model(), LARGE.inputs())
    options = PartitionOptions(memory_budget=budget)
    _, backward = split.partition(joint.graph, (), options, joint.given)
    assert run_with_rng_state() in [node.target for node in backward.graph.nodes]
    assert_equal(trained(LARGE, {"partition.memory_budget": budget}), trained(LARGE, None))


@pytest.mark.slow
@pytest.mark.parametrize("solver", ["greedy", "dp", "exact"])
@pytest.mark.parametrize("budget", BUDGETS)
@pytest.mark.parametrize("sample", SAMPLES, ids=BY_NAME)
def test_every_budget_and_solver(sample, budget, solver):
    options = {"partition.memory_budget": budget, "partition.solver": solver}
    assert_equal(trained(sample, options), trained(sample, None))
