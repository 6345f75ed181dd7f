"""Which joint graphs torch's own partitioner splits instead, and why.

Each needs a rewriting of the graph that is bound to AOTAutograd's runtime. They are named in
`docs/limitations.md`, and a compile logs which one it met.
"""

from collections.abc import Iterator

from torch.fx import Node

from ctk.compiler.fx.properties import is_effect, is_random
from ctk.compiler.fx.types import value_of
from ctk.compiler.partition.classify import NodeInfo
from ctk.compiler.partition.recipes import state_nbytes
from ctk.compiler.partition.roles import is_unrepeatable
from ctk.compiler.torch_compat.aot import partition as compat


def unsupported(info: NodeInfo) -> str | None:
    """Return why this joint graph is not for our partitioner; None if it is."""
    return next(_reasons(info), None)


def _reasons(info: NodeInfo) -> Iterator[str]:
    for setting in compat.settings_of_torchs_partitioner():
        yield f"{setting} is set"
    if compat.has_random_state_inputs(info.joint):
        yield "a sub-graph takes the state of a random generator"
    for node in info.nodes:
        where = f"({node.name})"
        if compat.is_opaque(value_of(node)):
            yield f"it hands on an object that is neither tensor nor number {where}"
        if compat.has_effect_token(node):
            yield f"an operator takes an effect token {where}"
        if getattr(node.target, "namespace", None) == "_c10d_functional":
            yield f"it calls a collective {where}"
        if "memory_budget" in node.meta or _region_budget(node.meta):
            yield f"the program sets a memory budget for a region {where}"
        if node in info.recomputed and (is_unrepeatable(node) or _cannot_draw_again(node)):
            yield f"checkpointing computes again what must not run twice {where}"
        if node in info.forward and node in info.backward:
            yield f"an output of forward depends on backward {where}"
        if is_effect(node) and node not in info.forward | info.backward:
            yield f"an effect belongs to neither side {where}"


def _cannot_draw_again(node: Node) -> bool:
    return is_random(node) and state_nbytes(node) is None


def _region_budget(meta: dict[str, object]) -> bool:
    custom = meta.get("custom")
    return isinstance(custom, dict) and any("memory_budget" in str(key) for key in custom)
