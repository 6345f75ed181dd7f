"""Bans: nodes that must not be recomputed in backward.

Hard bans keep the program correct and are never lifted: inputs, unrepeatable nodes, nodes that
checkpointing wants saved. Soft bans keep it fast; each has an option, and a memory budget lifts
them. Nodes that checkpointing wants recomputed have no ban, and views no soft one.

Source: torch/_functorch/partitioners.py, `solve_min_cut`. Differs: the first use that does not fuse
is found for all nodes in one sweep from the end instead of by a search per node; unrepeatable nodes
of both graphs are banned, not only nodes that forward needs.
"""

import dataclasses
import heapq
from collections.abc import Collection

import torch
from torch.fx import Node

from ctk.compiler.fx.operator_facts import (
    is_cheap,
    is_declared_view,
    is_expensive,
    is_fusible_random,
    packet_of,
)
from ctk.compiler.fx.properties import is_random, is_symbolic
from ctk.compiler.partition.classify import NodeInfo
from ctk.compiler.partition.costs import nbytes, total_nbytes
from ctk.compiler.partition.options import PartitionOptions
from ctk.compiler.partition.recipes import is_new_statistics, state_nbytes
from ctk.compiler.partition.roles import is_getitem, is_unrepeatable

LONG_CHAIN = 100
"""Nodes of forward after which a chain of fusible operators is cut; the value of torch's."""

REDUCTION = 4
"""`ban_reduction` bans results smaller than their operands by this factor; the value of torch's."""


def hard_bans(info: NodeInfo) -> frozenset[Node]:
    """Return the nodes that must never be recomputed."""
    bound = {node for node in info.nodes if _is_bound_to_forward(node, info)}
    banned = bound | info.kept | set(info.forward_inputs)
    return frozenset(banned - info.backward - info.recomputed)


def _is_bound_to_forward(node: Node, info: NodeInfo) -> bool:
    if is_random(node):
        return node not in info.forward or state_nbytes(node) is None
    return is_unrepeatable(node) or is_new_statistics(node)


def soft_bans(info: NodeInfo, options: PartitionOptions) -> frozenset[Node]:
    """Return the nodes that the options ban because saving them is faster."""
    if options.aggressive_recomputation:
        options = without_layout_bans(options, allow_list=False)
    found = {node for node in info.forward if _is_slow_again(node, info, options)}
    if options.ban_used_far_apart:
        found |= _find_far_uses(info)
    if options.ban_long_fusible_chains:
        found |= _ends_of_long_chains(info, found | hard_bans(info))
    return frozenset(node for node in found if _may_ban(node, info))


def without_layout_bans(options: PartitionOptions, *, allow_list: bool) -> PartitionOptions:
    """Return options without the bans that only guess at fusion."""
    return dataclasses.replace(
        options,
        ban_used_far_apart=False,
        ban_long_fusible_chains=False,
        ban_materialized_backward=False,
        ban_not_in_allow_list=allow_list and options.ban_not_in_allow_list,
        aggressive_recomputation=False,
    )


def _may_ban(node: Node, info: NodeInfo) -> bool:
    free = (
        is_declared_view(node.target)
        or is_getitem(node)
        or is_symbolic(node)
        or node.op != "call_function"
    )
    return not free and node not in info.recomputed and node not in info.backward


def _is_slow_again(node: Node, info: NodeInfo, options: PartitionOptions) -> bool:
    if node.op != "call_function":
        return False
    slow = not _is_cheap(node) if options.ban_not_in_allow_list else is_expensive(node)
    if slow or is_random(node):
        return True
    if options.ban_materialized_backward and _is_written_in_backward(node, info):
        return True
    return options.ban_reduction and _is_reduction(node)


def _is_reduction(node: Node) -> bool:
    read = [arg for arg in node.args if isinstance(arg, Node)]
    return nbytes(node) * REDUCTION < total_nbytes(read)


def _is_written_in_backward(node: Node, info: NodeInfo) -> bool:
    """Return whether a node, or a view of it, is returned or read from memory in backward."""
    waiting = [] if is_declared_view(node.target) else [node]
    while waiting:
        current = waiting.pop()
        for user in current.users:
            if user not in info.forward and not is_fusible(current, user):
                return True
            if is_declared_view(user.target):
                waiting.append(user)
    return False


def is_fusible(producer: Node, consumer: Node) -> bool:
    """Return whether a code generator makes one loop of both; `cat` fuses with all its operands."""
    if packet_of(consumer) is torch.ops.aten.cat:
        return True
    return all(_is_cheap(node) or is_fusible_random(node) for node in (producer, consumer))


def _is_cheap(node: Node) -> bool:
    return is_cheap(node) or is_symbolic(node)


def _find_far_uses(info: NodeInfo) -> set[Node]:
    """Return the fusible users of a node that come after an operator that does not fuse with it.

    With x -> relu, relu -> mm, x -> add: `add` comes after `mm`, so it is banned.
    """
    first = _first_unfusible(info)
    nodes: set[Node] = set()
    for node in info.nodes:
        users = [user for user in node.users if user in info.forward]
        if node not in info.forward or not users:
            continue
        end = min(first[user] for user in users)
        nodes.update(u for u in users if info.order[u] > end and is_fusible(node, u))
    return nodes


def _first_unfusible(info: NodeInfo) -> dict[Node, int]:
    """Return for each node the place of the first unfusible node behind a chain of fusible ones."""
    first: dict[Node, int] = {}
    for node in reversed(info.nodes):
        users = [user for user in node.users if user in info.forward]
        ends = (first[u] if is_fusible(node, u) else info.order[u] for u in users)
        first[node] = min(ends, default=len(info.nodes))
    return first


def _ends_of_long_chains(info: NodeInfo, banned: Collection[Node]) -> set[Node]:
    """Return the nodes at which a fusible region of over `LONG_CHAIN` nodes narrows to one.

    A region grows from a node to the users that fuse with it, in order, and visits each node once.
    """
    order = {node: place for place, node in enumerate(n for n in info.nodes if n in info.forward)}
    seen: set[Node] = set()
    nodes: set[Node] = set()
    cut = set(banned)
    for start, first in enumerate(order):
        region = [(start, first)]
        while region:
            place, node = heapq.heappop(region)
            if node in seen:
                continue
            seen.add(node)
            if place > start + LONG_CHAIN and not region:
                nodes.add(node)
                cut.add(node)
                break
            for user in node.users:
                if user in order and user not in cut and is_fusible(node, user):
                    heapq.heappush(region, (order[user], user))
    return nodes
