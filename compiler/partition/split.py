"""Split a joint graph: the entry points, with AOTAutograd's calling convention."""

import logging
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from typing import Any

from torch.fx import GraphModule, Node

from ctk.compiler.fx.copy import copy_graph_module
from ctk.compiler.fx.properties import (
    base_of,
    escapes,
    expression_of,
    is_effect,
    is_mutating,
    is_pure,
    is_random,
    is_symbolic,
    mutated_bases,
)
from ctk.compiler.fx.types import value_of
from ctk.compiler.partition.budget import DEFAULTS, choose_saved_values_set
from ctk.compiler.partition.classify import NodeInfo, classify_nodes
from ctk.compiler.partition.extract import extract, find_needed
from ctk.compiler.partition.options import PartitionOptions, require_budget
from ctk.compiler.partition.recipes import state_nbytes
from ctk.compiler.partition.roles import is_getitem, is_tensor, is_unrepeatable, tag_of
from ctk.compiler.torch_compat.aot import aot_dispatch as aot
from ctk.compiler.torch_compat.aot import partition as compat

log = logging.getLogger("ctk.partition")

_MERGE_TAGS = ("recompute", "ac_graph_id")

Split = tuple[GraphModule, GraphModule]


def partition(
    joint: GraphModule, joint_inputs: object, options: PartitionOptions, given: Mapping[str, Any]
) -> Split:
    """Split a joint graph with the algorithm of the options.

    Args:
        joint: Forward and backward in one graph; only torch's partitioner changes it.
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
    *,
    num_fwd_outputs: int,
    static_lifetime_input_indices: Sequence[int] | None = None,
    memory_budget: float | None = None,
    options: PartitionOptions = DEFAULTS,
    cse: bool = True,
) -> Split:
    """Split a joint graph by a minimum cut: backward recomputes values instead of reading them.

    A graph that only torch's partitioner can split (`find_unsupported`) goes there.

    Args:
        static_lifetime_input_indices: Positions of the primals that are free to save (parameters).
        memory_budget: From 0 to 1; None for the budget of the options.
        cse: Whether to merge equal expressions first.

    Raises:
        ConfigError: The budget is not from 0 to 1.
        CannotPartition: Backward needs a value that can neither be saved nor recomputed.
    """
    budget = options.memory_budget if memory_budget is None else memory_budget
    require_budget(budget)
    joint = merge_equal_expressions(joint) if cse else joint
    info = classify_nodes(joint, num_fwd_outputs, static_lifetime_input_indices or ())
    return _split(
        info,
        lambda: choose_saved_values_set(info, budget, options),
        lambda given: aot.min_cut_partition(joint, joint_inputs, given),
    )


def default_partition(
    joint: GraphModule,
    joint_inputs: object,
    *,
    num_fwd_outputs: int,
    static_lifetime_input_indices: Sequence[int] | None = None,
) -> Split:
    """Split a joint graph at the program's own boundary: save all that backward reads."""
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
    """Split a graph by the values to save, or by torch's partitioner."""
    reason = find_unsupported(info)
    if reason is None:
        return extract(info, choose())
    log.info("torch's own partitioner splits this graph: %s", reason)
    primals = {node: place for place, node in enumerate(info.forward_inputs)}
    static = sorted(primals[node] for node in info.static)
    count = len(info.forward_outputs)
    return torchs({"num_fwd_outputs": count, "static_lifetime_input_indices": static})


def find_unsupported(info: NodeInfo) -> str | None:
    """Return why torch's own partitioner must split this graph; None if this one can.

    Each reason needs a rewriting that is bound to AOTAutograd's runtime (`docs/limitations.md`).
    """
    return next(_reasons(info), None)


def _reasons(info: NodeInfo) -> Iterator[str]:
    for setting in compat.settings_of_torchs_partitioner():
        yield f"{setting} is set"
    if compat.has_random_state_inputs(info.joint):
        yield "a sub-graph takes the state of a random generator"
    for node in info.nodes:
        where = f"({node.name})"
        if compat.is_opaque(value_of(node)):
            yield f"it passes an object that is neither tensor nor number {where}"
        if compat.has_effect_token(node):
            yield f"an operator takes an effect token {where}"
        if getattr(node.target, "namespace", None) == "_c10d_functional":
            yield f"it calls a collective {where}"
        if "memory_budget" in node.meta or _region_budget(node.meta):
            yield f"the program sets a memory budget for a region {where}"
        if node in info.recomputed and (is_unrepeatable(node) or _cannot_draw_again(node)):
            yield f"checkpointing recomputes a node that must not run twice {where}"
        if node in info.forward and node in info.backward:
            yield f"an output of forward depends on backward {where}"
        if is_effect(node) and node not in info.forward | info.backward:
            yield f"an effect belongs to neither side {where}"


def _cannot_draw_again(node: Node) -> bool:
    return is_random(node) and state_nbytes(node) is None


def _region_budget(meta: dict[str, object]) -> bool:
    custom = meta.get("custom")
    return isinstance(custom, dict) and any("memory_budget" in str(key) for key in custom)


def merge_equal_expressions(joint: GraphModule) -> GraphModule:
    """Return a copy of a joint graph in which equal expressions are computed once.

    In a compile the pass `eliminate_common_subexpressions` has done it; a joint graph from
    elsewhere would have both results saved.

    Source: torch/_functorch/partitioners.py merges as well. Differs: expressions with a write
    between them, or with other tags of checkpointing, stay apart.
    """
    joint = copy_graph_module(joint)
    seen: dict[Hashable, Node] = {}
    written = mutated_bases(joint.graph)
    for node in list(joint.graph.nodes):
        if is_mutating(node):
            seen.clear()
        if node.op not in ("call_function", "get_attr") or not is_pure(node):
            continue
        key = (expression_of(node), *(str(node.meta.get(tag)) for tag in _MERGE_TAGS))
        earlier = seen.setdefault(key, node)
        if earlier is node or (escapes(earlier) and escapes(node)):
            continue
        if written.isdisjoint((base_of(earlier), base_of(node))):
            node.replace_all_uses_with(earlier)
            joint.graph.erase_node(node)
    return joint


def all_that_backward_reads(info: NodeInfo) -> list[Node]:
    """Return the values of forward that backward reads, for the plain partition.

    Forward runs the program's forward; only checkpointed regions are recomputed. If backward reads
    only the size of a tensor, the size is saved instead.

    Source: torch/_functorch/partitioners.py, `default_partition`. Differs: the search starts from
    backward; torch saves all of forward, then drops values without a reader.
    """
    forward = _side_of_forward(info) - info.recomputed
    savable = {node for node in forward if is_tensor(node) or is_symbolic(node)}
    read = find_needed(info, savable)
    return [node for node in info.nodes if node in savable and node in read]


def _side_of_forward(info: NodeInfo) -> set[Node]:
    """Return the nodes that forward needs or traced, with the items and sizes of their values."""
    forward: set[Node] = set()
    for node in info.nodes:
        if node in info.backward:
            continue
        own = node in info.forward or node.op == "placeholder" or tag_of(node) == "is_forward"
        part = is_getitem(node) or is_symbolic(node)
        if own or (part and forward.issuperset(node.all_input_nodes)):
            forward.add(node)
    return forward
