"""Split a joint graph: the entry points, with AOTAutograd's calling convention."""

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from torch.fx import GraphModule, Node

from ctk.compiler.partition.budget import DEFAULTS, choose_saved_values_set
from ctk.compiler.partition.classify import NodeInfo, classify_nodes
from ctk.compiler.partition.default import all_that_backward_reads
from ctk.compiler.partition.extract import extract
from ctk.compiler.partition.merging import merged
from ctk.compiler.partition.options import PartitionOptions, require_budget
from ctk.compiler.partition.support import unsupported
from ctk.compiler.torch_compat.aot import aot_dispatch as aot

log = logging.getLogger("ctk.partition")

Split = tuple[GraphModule, GraphModule]


def partition(
    joint: GraphModule,
    joint_inputs: object,
    options: PartitionOptions,
    given: Mapping[str, Any],
) -> Split:
    """Split a joint graph with the algorithm of the options.

    Args:
        joint: Forward and backward in one graph; not changed, unless torch's partitioner is asked.
        joint_inputs: Primals and tangents; only torch's partitioner is handed them.
        options: How.
        given: Keyword arguments of AOTAutograd: `num_fwd_outputs`, `static_lifetime_input_indices`.
    """
    if options.algorithm == "torch":
        return aot.min_cut_partition(joint, joint_inputs, given)
    if options.algorithm == "default":
        return default_partition(joint, joint_inputs, **given)
    given = {**given, "options": options, "cse": False}
    return min_cut_rematerialization_partition(joint, joint_inputs, **given)


def min_cut_rematerialization_partition(
    joint: GraphModule,
    joint_inputs: object,
    compiler: str = "inductor",
    *,
    num_fwd_outputs: int,
    static_lifetime_input_indices: Sequence[int] | None = None,
    memory_budget: float | None = None,
    options: PartitionOptions = DEFAULTS,
    cse: bool = True,
) -> Split:
    """Split a joint graph so that backward computes again what is cheaper than to save.

    A graph that only torch's partitioner can split (`support.py`) goes there.

    Args:
        joint: Forward and backward in one graph; not changed.
        joint_inputs: Primals and tangents; not read.
        compiler: Taken because callers of torch's partitioner give it; not read.
        num_fwd_outputs: How many outputs of the joint graph are the forward graph's.
        static_lifetime_input_indices: Which primals are free to save (parameters), by position.
        memory_budget: From 0 to 1; None for that of the options.
        options: Bans, budget and solver.
        cse: Whether to merge equal expressions before.

    Raises:
        ConfigError: The budget is not from 0 to 1.
        CannotPartition: Backward needs what can neither be saved nor computed again.
    """
    del compiler
    budget = options.memory_budget if memory_budget is None else memory_budget
    require_budget(budget)
    joint = merged(joint) if cse else joint
    info = classify_nodes(joint, num_fwd_outputs, static_lifetime_input_indices or ())
    return _split(
        info,
        lambda: choose_saved_values_set(joint.graph, info, budget, options=options),
        lambda given: aot.min_cut_partition(joint, joint_inputs, given),
    )


def default_partition(
    joint: GraphModule,
    joint_inputs: object,
    *,
    num_fwd_outputs: int,
    static_lifetime_input_indices: Sequence[int] | None = None,
) -> Split:
    """Split a joint graph where the program did: save all that backward reads.

    Args:
        joint: Forward and backward in one graph; not changed.
        joint_inputs: Primals and tangents; not read.
        num_fwd_outputs: How many outputs of the joint graph are the forward graph's.
        static_lifetime_input_indices: Which primals are parameters.
    """
    info = classify_nodes(joint, num_fwd_outputs, static_lifetime_input_indices or ())
    return _split(
        info,
        lambda: all_that_backward_reads(info),
        lambda given: aot.plain_partition(joint, joint_inputs, given),
    )


def _split(
    info: NodeInfo,
    choose: Callable[[], Sequence[Node]],
    torchs: Callable[[Mapping[str, object]], Split],
) -> Split:
    """Split a graph by what is to be saved, or let torch do it."""
    reason = unsupported(info)
    if reason is None:
        return extract(info, choose())
    log.info("torch's own partitioner splits this graph: %s", reason)
    primals = {node: place for place, node in enumerate(info.forward_inputs)}
    static = sorted(primals[node] for node in info.static)
    count = len(info.forward_outputs)
    return torchs({"num_fwd_outputs": count, "static_lifetime_input_indices": static})
