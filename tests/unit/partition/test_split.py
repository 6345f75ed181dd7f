"""The two graphs of a joint graph: what is saved, in which order, and within which budget."""

import pytest
import torch
from torch import nn
from torch.fx import Graph, GraphModule

from ctk.compiler.errors import ConfigError
from ctk.compiler.fx.properties import is_random, is_symbolic
from ctk.compiler.fx.types import type_text
from ctk.compiler.fx.walk import children, input_names, output_leaves
from ctk.compiler.partition import split
from ctk.compiler.partition.budget import choose_saved_values_set
from ctk.compiler.partition.classify import classify_nodes
from ctk.compiler.partition.costs import nbytes, run_time
from ctk.compiler.partition.network import CannotPartition, cut
from ctk.compiler.partition.options import PartitionOptions
from ctk.compiler.partition.overwritten import overwritten_inputs
from ctk.compiler.partition.roles import is_getitem
from ctk.compiler.partition.split import find_unsupported
from ctk.compiler.torch_compat.aot import aot_dispatch as aot
from ctk.compiler.torch_compat.aot.partition import (
    nodes_saved_by,
    run_and_save_rng_state,
    run_with_rng_state,
    torch_budget,
)
from tests.helpers.joint_graphs import BY_NAME, Calls, Joint, joint_of, joint_of_sample

aten = torch.ops.aten
BUDGETS = (0.0, 0.25, 0.5, 0.75, 1.0)
ORDINARY = (
    "mlp",
    "dropout",
    "batch_norm",
    "convolutions",
    "encoder",
    "attention",
    "dynamic",
    "tied",
    "lstm",
    "mixture",
    "causal",
    "embedding",
)


def ours(joint: Joint, **options: object) -> tuple[GraphModule, GraphModule]:
    chosen = PartitionOptions(**options)
    return split.partition(joint.copy(), (), chosen, joint.given)


def saved_nbytes(joint: Joint, forward: GraphModule) -> int:
    """Return the bytes that a forward graph saves, without what is static."""
    count = joint.given["num_fwd_outputs"]
    static = [input_names(joint.graph)[i] for i in joint.given["static_lifetime_input_indices"]]
    return sum(nbytes(node) for node in nodes_saved_by(forward, count) if node.name not in static)


def targets(gm: GraphModule) -> list[object]:
    return [node.target for node in gm.graph.nodes if node.op == "call_function"]


@pytest.mark.parametrize("name", ORDINARY)
def test_a_smaller_budget_saves_no_more_and_keeps_within_its_bytes(name):
    joint = joint_of_sample(name)
    saved = [saved_nbytes(joint, ours(joint, memory_budget=b)[0]) for b in BUDGETS]
    assert saved == sorted(saved)
    for budget, found in zip(BUDGETS, saved, strict=True):
        assert found <= saved[0] + budget * (saved[-1] - saved[0])


@pytest.mark.parametrize("budget", BUDGETS)
@pytest.mark.parametrize("name", ORDINARY)
def test_no_more_is_saved_than_by_torch(name, budget):
    """But for the bytes of random numbers, which torch's draws anew below a budget of 1."""
    joint = joint_of_sample(name)
    with torch_budget(budget):
        torchs, backward = aot.min_cut_partition(joint.copy(), (), joint.given)
    forward, _ = ours(joint, memory_budget=budget)
    drawn = {node.name for node in backward.graph.nodes if is_random(node)}
    masks = [n for n in joint.graph.graph.nodes if is_getitem(n) and n.args[0].name in drawn]
    extra = sum(nbytes(node) for node in masks if node.args[1] == 1)
    assert saved_nbytes(joint, forward) <= saved_nbytes(joint, torchs) + extra


@pytest.mark.parametrize("name", BY_NAME)
@pytest.mark.parametrize("algorithm", ["min_cut", "default"])
def test_inputs_and_outputs_are_as_aotautograd_wants_them(name, algorithm):
    """Primals in, tensors before symbols out; symbols, tensors, tangents in, gradients out."""
    joint = joint_of_sample(name)
    forward, backward = ours(joint, algorithm=algorithm)
    count = joint.given["num_fwd_outputs"]
    names = input_names(joint.graph)
    tangents = [name for name in names if name.startswith("tangents")]
    assert input_names(forward) == [n for n in names if n not in tangents and "rng" not in n]
    saved = nodes_saved_by(forward, count)
    symbols = [is_symbolic(node) for node in saved]
    assert symbols == sorted(symbols)
    assert len(output_leaves(backward)) == len(output_leaves(joint.graph)) - count
    inputs = input_names(backward)
    split_at = sum(symbols)
    wanted = [node.meta["val"] for node in saved]
    wanted = wanted[len(wanted) - split_at :] + wanted[: len(wanted) - split_at]
    values = [node.meta["val"] for node in backward.graph.find_nodes(op="placeholder")]
    assert [type_text(value) for value in values[: len(wanted)]] == list(map(type_text, wanted))
    assert inputs[len(wanted) :] == tangents


@pytest.mark.parametrize("name", ["mlp", "attention", "dynamic_sizes", "tied", "batch_norm"])
def test_the_default_partition_saves_as_little_as_torchs(name):
    joint = joint_of_sample(name)
    forward, backward = ours(joint, algorithm="default")
    torchs, torchs_backward = aot.plain_partition(joint.copy(), (), joint.given)
    assert saved_nbytes(joint, forward) <= saved_nbytes(joint, torchs)
    assert targets(forward) == targets(torchs)
    assert sorted(map(str, targets(backward))) == sorted(map(str, targets(torchs_backward)))


def test_metas_names_and_descriptions_are_kept():
    joint = joint_of_sample("attention")
    forward, backward = ours(joint)
    for gm in (forward, backward):
        for node in gm.graph.nodes:
            assert node.op == "output" or node.name in {n.name for n in joint.graph.graph.nodes}
            assert node.op == "output" or "val" in node.meta
        described = gm.graph.output_node().meta["desc"]
        assert len(described) == len(output_leaves(gm)) and None not in described


def test_random_numbers_are_drawn_once():
    joint = joint_of_sample("dropout")
    for budget in BUDGETS:
        forward, backward = ours(joint, memory_budget=budget)
        assert any(is_random(node) for node in forward.graph.nodes)
        assert not any(is_random(node) for node in backward.graph.nodes)


def test_subgraphs_go_where_they_are_called():
    joint = joint_of_sample("cond")
    forward, backward = ours(joint)
    assert children(forward) and children(backward)
    assert len(children(forward)) + len(children(backward)) == len(children(joint.graph))
    _, again = ours(joint, memory_budget=0.0)
    assert len(children(again)) == len(children(joint.graph))


def test_what_forward_overwrites_is_copied_before():
    joint = joint_of_sample("overwritten_buffer")
    count = joint.given["num_fwd_outputs"]
    (buffer,) = overwritten_inputs(classify_nodes(joint.graph, count))
    for budget in BUDGETS:
        forward, backward = ours(joint, memory_budget=budget)
        assert buffer.name not in [node.name for node in nodes_saved_by(forward, count)]
        assert aten.copy_.default in targets(forward)
        assert aten.copy_.default not in targets(backward)


def test_a_checkpointed_region_is_computed_again():
    joint = joint_of_sample("checkpoint")
    forward, backward = ours(joint)
    again = [target for target in targets(backward) if target is aten.gelu.default]
    assert again and aten.gelu.default in targets(forward)


def test_a_checkpointed_region_draws_the_same_numbers_again():
    joint = joint_of_sample("checkpoint_dropout")
    forward, backward = ours(joint)
    names = [node.name for node in nodes_saved_by(forward, joint.given["num_fwd_outputs"])]
    states = [name for name in input_names(backward) if name.startswith("rng_state")]
    assert len(states) == 2 and len(names) == len(input_names(backward)) - 1
    assert run_and_save_rng_state() in targets(forward)
    assert run_with_rng_state() in targets(backward)


@pytest.mark.parametrize("name", BY_NAME)
def test_ours_splits_all(name):
    joint = joint_of_sample(name)
    assert find_unsupported(classify_nodes(joint.graph, joint.given["num_fwd_outputs"])) is None


def test_equal_expressions_are_saved_once():
    """In a joint graph that no pass has seen."""
    graph = Graph()
    primal, tangent = graph.placeholder("primals_1"), graph.placeholder("tangents_1")
    products = [graph.call_function(aten.mm.default, (primal, primal)) for _ in range(2)]
    outputs = [graph.call_function(aten.sin.default, (product,)) for product in products]
    slopes = [graph.call_function(aten.cos.default, (product,)) for product in products]
    gradient = graph.call_function(aten.mul.Tensor, (tangent, slopes[0]))
    gradient = graph.call_function(aten.mul.Tensor, (gradient, slopes[1]))
    total = graph.call_function(aten.add.Tensor, (outputs[0], outputs[1]))
    for node in graph.nodes:
        node.meta["val"] = torch.empty(4, 4, device="meta")
    graph.output((total, gradient))
    joint = GraphModule({}, graph)
    merged, _ = split.min_cut_rematerialization_partition(joint, (), num_fwd_outputs=1)
    apart, _ = split.min_cut_rematerialization_partition(joint, (), num_fwd_outputs=1, cse=False)
    assert (len(nodes_saved_by(merged, 1)), len(nodes_saved_by(apart, 1))) == (1, 2)


@pytest.mark.parametrize("budget", [-0.5, 1.5, float("nan")])
def test_a_budget_outside_0_to_1_is_refused(budget):
    joint = joint_of_sample("mlp")
    info = classify_nodes(joint.graph, joint.given["num_fwd_outputs"])
    with pytest.raises(ConfigError, match="memory_budget"):
        choose_saved_values_set(info, budget)
    with pytest.raises(ConfigError, match="memory_budget"):
        split.min_cut_rematerialization_partition(
            joint.graph, (), memory_budget=budget, **joint.given
        )


def test_recomputed_values_live_shortly():
    """Each tanh is computed again right before its gradient, the last layer's first."""

    def call(_, x):
        for _ in range(3):
            x = torch.sin(torch.exp(x))
        return x

    joint = joint_of(Calls(call), (torch.randn(4, requires_grad=True),))
    _, backward = ours(joint, memory_budget=0.0)
    nodes = [node.name for node in backward.graph.nodes]
    assert nodes.index("exp_2") < nodes.index("mul") < nodes.index("cos_1")


def hand_made(*, saveable: bool) -> tuple[GraphModule, int]:
    """Return `sin(primals_1)` and its gradient; its primal's value can be saved or is unknown."""
    graph = Graph()
    primal, tangent = graph.placeholder("primals_1"), graph.placeholder("tangents_1")
    sin = graph.call_function(aten.sin.default, (primal,))
    cos = graph.call_function(aten.cos.default, (primal,))
    mul = graph.call_function(aten.mul.Tensor, (tangent, cos))
    graph.output((sin, mul))
    for node in (primal, tangent, sin, cos, mul) if saveable else (tangent,):
        node.meta["val"] = torch.empty(4, device="meta")
    return GraphModule({}, graph), 1


def test_the_example_of_the_classification():
    joint, count = hand_made(saveable=True)
    info = classify_nodes(joint, count)
    assert [node.name for node in info.nodes if node in info.forward] == [
        "primals_1",
        "sin_default",
    ]
    assert [node.name for node in info.nodes if node in info.backward] == [
        "tangents_1",
        "mul_tensor",
    ]


def test_what_can_neither_be_saved_nor_computed_again_is_named():
    joint, count = hand_made(saveable=False)
    info = classify_nodes(joint, count)
    with pytest.raises(CannotPartition, match="primals_1 -> cos_default -> mul_tensor"):
        cut(info, info.forward_inputs)


def test_a_product_takes_longer_than_a_sum():
    joint = joint_of(nn.Linear(64, 64), (torch.randn(64, 64, requires_grad=True),))
    times = {node.target: run_time(node) for node in joint.graph.graph.nodes}
    assert times[aten.addmm.default] >= 2 * 64**3


@pytest.mark.parametrize("solver", ["greedy", "dp", "exact"])
def test_every_solver_keeps_to_the_budget(solver):
    joint = joint_of_sample("attention")
    low, high = (saved_nbytes(joint, ours(joint, memory_budget=b)[0]) for b in (0.0, 1.0))
    for budget in (0.2, 0.5, 0.9):
        found = saved_nbytes(joint, ours(joint, memory_budget=budget, solver=solver)[0])
        assert found <= low + budget * (high - low)
