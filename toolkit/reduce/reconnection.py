"""Remove nodes from a graph and close the gaps: their readers read the ancestors.

For `b(reshape(mul(a(x), w)))` without the nodes in between:

1. `b` is fed straight from `a`, if it takes that value (`_Forms`); later forms may change;
2. else `a` is cast, reshaped or expanded (`adapt_value`), and the form of `b` stays;
3. else `b` reads a new input with its value in an eager run.

The nearest ancestor first, a computed value before an input, the same form before another.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, cast

import torch
from torch.fx import Node
from torch.fx.node import map_arg

from ctk.compiler.fx.effects import mutated_arguments
from ctk.compiler.fx.rebuild import Change, Computed, SameAs, Substitute, leaves
from ctk.compiler.fx.walk import CALLS, input_names, output_leaves
from ctk.compiler.torch_compat.fake import fake_tensors as fake
from ctk.toolkit.case.case import Case
from ctk.toolkit.execution.modes import apply_modes
from ctk.toolkit.reduce.analysis import Facts, is_cuttable, is_number
from ctk.toolkit.reduce.eager_values import TensorInfo, call_node, describe, values_before
from ctk.toolkit.reduce.graph_changes import (
    as_inputs,
    change_graph,
    with_inputs,
    without_grad,
    without_types,
)

Edge = tuple[str, str]
"""A reader and its operand, by name."""


class _Refused(Exception):
    """A node does not take operands of these forms."""


@dataclass(slots=True)
class _Forms:
    """The forms of a case's values while its graph changes, by node name; no number is computed.

    Attributes:
        known: Forms in the original case (`eager_values.describe`).
    """

    case: Case
    known: Mapping[str, object]
    changed: dict[str, object] = field(default_factory=dict[str, object])
    _mode: Any = None

    def of(self, name: str) -> object:
        """Return the current form of a value."""
        return self.changed.get(name, self.known[name])

    def was(self, name: str) -> object:
        """Return the original form of a value."""
        return self.known[name]

    def run(self, node: Node, read: Callable[[Node], object]) -> None:
        """Record the result form of a node for operands of other forms.

        Args:
            read: Maps an operand to the form of the value that is read in its place.

        Raises:
            _Refused: It takes no such operands, or fake tensors cannot run it.
        """
        try:
            found = self._run(node, read)
        except Exception as error:
            raise _Refused(f"{node.name}: {error}") from error
        before = self.known[node.name]
        found = _as_before(found, before)
        if found != before:
            self.changed[node.name] = found

    def _run(self, node: Node, read: Callable[[Node], object]) -> object:
        self._mode = self._mode or fake.new_fake_mode()
        with fake.without_log(), apply_modes(self.case.modes), fake.fake_compute(self._mode):
            arguments = map_arg((node.args, node.kwargs), lambda each: _compute_form(read(each)))
            args, kwargs = cast("tuple[tuple[Any, ...], dict[str, Any]]", arguments)
            return describe(call_node(self.case.graph, node, args, kwargs))


def _compute_form(info: object) -> Any:
    if isinstance(info, TensorInfo):
        device = torch.device(info.device)
        return torch.empty_strided(info.shape, info.stride, dtype=info.dtype, device=device)
    return tuple(_compute_form(item) for item in info) if isinstance(info, tuple) else info


def _as_before(found: object, before: object) -> object:
    """Return a form with the gradient flags that a fake run does not compute."""
    if isinstance(found, tuple) and isinstance(before, tuple) and len(found) == len(before):
        return tuple(_as_before(*pair) for pair in zip(found, before, strict=True))
    if isinstance(found, TensorInfo) and isinstance(before, TensorInfo):
        return replace(found, requires_grad=before.requires_grad, in_transform=before.in_transform)
    return found


@dataclass(slots=True)
class _Gaps:
    """The replacements for the removed values, by reader.

    Attributes:
        sources: The ancestor that replaces each removed value, if there is one.
        edges: The new operands of readers.
        cuts: Removed values that become inputs, each with its first reader.
        written: Values that remaining nodes change in place; computed once.
    """

    case: Case
    facts: Facts
    removed: frozenset[str]
    sources: Mapping[str, str]
    forms: _Forms
    edges: dict[Edge, Substitute] = field(default_factory=dict[Edge, Substitute])
    cuts: dict[str, str] = field(default_factory=dict[str, str])
    written: frozenset[str] | None = None

    def close(self) -> None:
        """Find the operands of the remaining nodes, in order."""
        for node in self.case.graph.graph.nodes:
            if node.op in CALLS and node.name not in self.removed:
                self._feed(node)

    def _feed(self, node: Node) -> None:
        reads = {operand.name: self._read(node, operand) for operand in node.all_input_nodes}
        others = {name: source for name, source in reads.items() if source != name}
        self.edges |= {(node.name, name): SameAs(source) for name, source in others.items()}
        strange = [name for name, source in reads.items() if self._is_strange(name, source)]
        if not strange:
            return
        try:
            self.forms.run(node, lambda each: self._form(reads[each.name], each.name))
        except _Refused:
            self._adapt(node, reads, strange)

    def _read(self, node: Node, value: Node) -> str:
        """Return the replacement of a value for a node; itself if it becomes an input."""
        if value.name not in self.removed:
            return value.name
        source = self.sources.get(value.name)
        if source is None or (value.name in self._find_written() and self._is_leaf(source)):
            self._cut(node, value.name)
            return value.name
        return source

    def _find_written(self) -> frozenset[str]:
        if self.written is None:
            by_nodes = self.facts.mutators - self.removed
            nodes = (n for n in self.case.graph.graph.nodes if n.name in by_nodes)
            self.written = frozenset(
                argument.name for n in nodes for argument in mutated_arguments(n)
            )
        return self.written

    def _is_leaf(self, source: str) -> bool:
        info = self.facts.infos[source]
        is_input = source in self.facts.inputs
        return is_input and isinstance(info, TensorInfo) and info.requires_grad

    def _is_strange(self, name: str, source: str) -> bool:
        if source == name:
            return name in self.forms.changed
        have, want = self.forms.of(source), self.forms.was(name)
        if not isinstance(have, TensorInfo) or not isinstance(want, TensorInfo):
            return have != want
        return not want.is_like(have) or have.stride != want.stride

    def _form(self, source: str, name: str) -> object:
        return self.forms.was(name) if source in self.removed else self.forms.of(source)

    def _adapt(self, node: Node, reads: Mapping[str, str], strange: Iterable[str]) -> None:
        written = {argument.name for argument in mutated_arguments(node)}
        for name in strange:
            source = reads[name]
            have, want = self.forms.of(source), self.forms.was(name)
            substitute = adapt_value(source, have, want) if name not in written else None
            if substitute is not None:
                self.edges[node.name, name] = substitute
            elif name in self.removed:
                del self.edges[node.name, name]
                self._cut(node, name)
            else:
                raise _Refused(f"{node.name}: {name} is another value now")

    def _cut(self, node: Node, name: str) -> None:
        if not is_cuttable(self.facts.infos[name]):
            raise _Refused(f"{name} can be no input")
        self.cuts.setdefault(name, node.name)


def reconnect(
    case: Case,
    facts: Facts,
    removed: frozenset[str],
    sources: Mapping[str, str] | None = None,
    new_values: Mapping[str, torch.Tensor] | None = None,
) -> Case | None:
    """Return a case without some nodes, whose readers are fed from their ancestors.

    Args:
        sources: Replacements for some of them, if not the nearest ancestor.
        new_values: Other values for some inputs, of any form.

    Returns:
        None if a reader cannot be fed, or no result is left.
    """
    found = nearest(case, facts, removed, sources or {})
    values = new_values or {}
    forms = _Forms(case, facts.infos, {name: describe(value) for name, value in values.items()})
    gaps = _Gaps(case, facts, removed, found, forms)
    try:
        gaps.close()
    except _Refused:
        return None
    outputs = _outputs(case, facts, removed, gaps)
    if not outputs:
        return None
    inputs: dict[str, object] = {}
    substitutes = _cut_values(case, facts, gaps.cuts, inputs)
    gone = removed - substitutes.keys()
    change = Change(substitutes, gone=gone, outputs=outputs, edges=gaps.edges)
    result = change_graph(case, change, without_grad(case.graph, removed, inputs))
    if result is None:
        return None
    result = without_types(result, forms.changed)
    names = input_names(result.graph)
    return with_inputs(result, {name: new for name, new in values.items() if name in names})


def nearest(
    case: Case, facts: Facts, removed: frozenset[str], sources: Mapping[str, str]
) -> dict[str, str]:
    """Return the replacement of each removed value: the best remaining ancestor."""
    found: dict[str, str] = {}
    places: dict[str, int] = {}
    for place, node in enumerate(case.graph.graph.nodes):
        places[node.name] = place
        if node.name not in removed:
            continue
        if node.name in sources:
            found[node.name] = sources[node.name]
            continue
        info = facts.infos[node.name]
        options = [found.get(operand.name) or operand.name for operand in node.all_input_nodes]
        fitting = [name for name in options if _is_source(name, facts, removed)]
        if fitting:
            found[node.name] = max(fitting, key=lambda name: _rank(name, info, facts, places))
    return found


def _is_source(name: str, facts: Facts, removed: frozenset[str]) -> bool:
    return name not in removed and isinstance(facts.infos[name], TensorInfo)


def _rank(
    name: str, wanted: object, facts: Facts, places: Mapping[str, int]
) -> tuple[bool, bool, int]:
    info = facts.infos[name]
    is_like = isinstance(wanted, TensorInfo) and wanted.is_like(info)
    return name not in facts.inputs, is_like, places[name]


def _outputs(case: Case, facts: Facts, removed: frozenset[str], gaps: _Gaps) -> tuple[str, ...]:
    """Return the results: remaining ones, replaced ones, and values that lost all readers."""
    leaves = [leaf.name for leaf in output_leaves(case.graph) if isinstance(leaf, Node)]
    kept = [name if name not in removed else gaps.sources.get(name) for name in leaves]
    read = {leaf.name for edge in gaps.edges.values() for leaf in _names(edge)}
    for node in case.graph.graph.nodes:
        if node.op not in CALLS or node.name in removed or node.name in read:
            continue
        is_lost = bool(node.users) and all(user.name in removed for user in node.users)
        if is_lost and isinstance(facts.infos[node.name], TensorInfo):
            kept.append(node.name)
    return tuple(dict.fromkeys(name for name in kept if name is not None))


def _names(substitute: Substitute) -> Iterable[SameAs]:
    return [leaf for leaf in leaves(substitute) if isinstance(leaf, SameAs)]


def _cut_values(
    case: Case, facts: Facts, cuts: Mapping[str, str], inputs: dict[str, object]
) -> dict[str, Substitute]:
    numbers = {name for name in cuts if is_number(facts.infos[name])}
    wanted = {name: reader for name, reader in cuts.items() if name not in numbers}
    values = values_before(case, wanted) if wanted else {}
    values |= {name: facts.infos[name] for name in numbers}
    return {name: as_inputs(values[name], name, inputs) for name in cuts}


def adapt_value(name: str, have: object, want: object) -> Substitute | None:
    """Return a value cast, reshaped or expanded to the form that a reader needs.

        have float32[2, 3, 8]   want float32[6, 8]      reshape(x, (6, 8))
        have float32[3, 1]      want float32[3, 5]      x.expand((3, 5))
        have float32[4]         want float16[2, 7]      amax(x.to(float16)).expand((2, 7))

    `amax` keeps the dtype, NaN, the gradient and the range of indices; a sum would not.


    Returns:
        None if it cannot fit: no tensors, another device, or no element to take.
    """
    if not isinstance(have, TensorInfo) or not isinstance(want, TensorInfo):
        return None
    if have.device != want.device or (want.numel and not have.numel):
        return None
    source: Substitute = SameAs(name)
    if have.dtype != want.dtype:
        source = Computed("to", (source, want.dtype))
    if have.shape == want.shape:
        return source
    if have.numel == want.numel:
        return Computed(torch.reshape, (source, want.shape))
    if not _expands(have.shape, want.shape):
        if want.dtype.is_complex:
            return None
        source = Computed(torch.amax, (source,))
    return Computed("expand", (source, want.shape)) if want.shape else source


def _expands(have: tuple[int, ...], want: tuple[int, ...]) -> bool:
    if len(have) > len(want):
        return False
    behind = want[len(want) - len(have) :]
    return all(mine in (1, other) for mine, other in zip(have, behind, strict=True))
