"""Facts of a case for steps and edits: kinds of values, units of removal, effects, gradients."""

import operator
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

import torch
from torch.fx import GraphModule, Node

from ctk.compiler.fx.copy import pause_collection
from ctk.compiler.fx.effects import is_marker, mutated_arguments
from ctk.compiler.fx.walk import CALLS, output_leaves, placeholders
from ctk.toolkit.case.case import Case
from ctk.toolkit.case.formats.tensor_content import ContentCache
from ctk.toolkit.reduce.eager_values import TensorInfo, node_infos


@dataclass(frozen=True, slots=True)
class Facts:
    """Facts of one case, all by node name.

    Attributes:
        infos: Description of each node's value in an eager run (`eager_values.describe`).
        units: Call nodes in order, in groups that only make sense together: an op that returns a
            tuple and the `getitem`s that take it apart. Markers and free nodes belong to no unit.
        markers: Nodes that change the state of the program (grad mode, autocast, assertions).
        inputs: Nodes that hold a value and compute none: placeholders and attributes.
        free: Number-valued nodes that only need inputs (`x.size(0)`, `s77 * 4`): copied along,
            never cut.
        raised: Nodes that raised in eager and got zeros as values.
        notes: Results that steps keep for this case, by a name of theirs.
        handed_on: Results that steps keep for cases that may become the best one; the facts of the
            next best case share it.
        may_run: Candidates may run in this process; otherwise fake tensors describe them.
    """

    infos: Mapping[str, object]
    units: tuple[tuple[str, ...], ...]
    markers: frozenset[str]
    mutators: frozenset[str]
    inputs: frozenset[str]
    free: frozenset[str]
    raised: frozenset[str] = frozenset()
    notes: dict[str, object] = field(default_factory=dict[str, object], compare=False, repr=False)
    handed_on: dict[str, object] = field(
        default_factory=dict[str, object], compare=False, repr=False
    )
    contents: ContentCache = field(default_factory=ContentCache, compare=False)
    may_run: bool = True


def facts_of(case: Case, contents: ContentCache | None = None, *, may_run: bool = True) -> Facts:
    """Run a case once in eager and return its facts."""
    with pause_collection():
        infos, raised = node_infos(case)
        return replace(facts_from(case, infos, contents, may_run=may_run), raised=raised)


def facts_from(
    case: Case,
    infos: Mapping[str, object],
    contents: ContentCache | None = None,
    *,
    may_run: bool = True,
) -> Facts:
    """Return the facts of a case whose values are known."""
    nodes = list(case.graph.graph.nodes)
    calls = [node for node in nodes if node.op in CALLS]
    markers = frozenset(node.name for node in calls if is_marker(node, infos[node.name]))
    free = _free_nodes(nodes, infos)
    return Facts(
        infos=infos,
        units=_units(calls, infos, skip=markers | free),
        markers=markers,
        mutators=frozenset(node.name for node in calls if mutated_arguments(node)),
        inputs=frozenset(node.name for node in nodes if node.op in ("placeholder", "get_attr")),
        free=free,
        contents=contents or ContentCache(),
        may_run=may_run,
    )


def is_number(info: object) -> bool:
    """Return whether a described value is a number, or a tuple of numbers such as a size."""
    if isinstance(info, tuple):
        return bool(info) and all(is_number(item) for item in info)
    return isinstance(info, (int, float, bool))


def is_cuttable(info: object) -> bool:
    """Return whether a described value can become an input or a constant."""
    if isinstance(info, tuple):
        return all(is_cuttable(item) for item in info)
    if isinstance(info, TensorInfo):
        return not info.in_transform
    plain = (int, float, bool, str, torch.dtype, torch.device, type(None))
    return isinstance(info, plain)


def dead_calls(gm: GraphModule, effects: frozenset[str]) -> frozenset[str]:
    """Return the calls without an effect that no call but such calls reads."""
    dead: set[Node] = set()
    for node in reversed(gm.graph.nodes):
        if node.op in CALLS and node.name not in effects and node.users.keys() <= dead:
            dead.add(node)
    return frozenset(node.name for node in dead)


def has_gradient(case: Case) -> bool:
    """Return whether some output depends on an input that requires grad."""
    inputs = zip(placeholders(case.graph), case.inputs, strict=True)
    reached = {node for node, value in inputs if getattr(value, "requires_grad", False)}
    for node in case.graph.graph.nodes:
        if any(argument in reached for argument in node.all_input_nodes):
            reached.add(node)
    return any(leaf in reached for leaf in output_leaves(case.graph))


def _free_nodes(nodes: Iterable[Node], infos: Mapping[str, object]) -> frozenset[str]:
    free: set[str] = set()
    for node in nodes:
        is_computed = node.op in CALLS and is_number(infos[node.name])
        if is_computed and all(
            argument.op == "placeholder" or argument.name in free
            for argument in node.all_input_nodes
        ):
            free.add(node.name)
    return frozenset(free)


def _units(
    calls: Iterable[Node], infos: Mapping[str, object], *, skip: frozenset[str]
) -> tuple[tuple[str, ...], ...]:
    heads: dict[str, str] = {}
    units: dict[str, list[str]] = {}
    for node in calls:
        if node.name in skip:
            continue
        source = node.args[0] if node.target is operator.getitem else None
        if isinstance(source, Node) and isinstance(infos[source.name], tuple):
            heads[node.name] = heads.get(source.name, node.name)
        else:
            heads[node.name] = node.name
        units.setdefault(heads[node.name], []).append(node.name)
    return tuple(tuple(unit) for unit in units.values())
