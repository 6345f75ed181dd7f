"""Make the case with other sizes: windows of inputs and constants, other literals."""

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.fx import GraphModule

from ctk.compiler.fx.clone import clone_inputs
from ctk.compiler.fx.copy import copy_graph_module
from ctk.compiler.fx.walk import CALLS, fetch, graphs_by_path, input_names, placeholders
from ctk.compiler.torch_compat.fx.graphs import storage_of
from ctk.toolkit.case.case import Case
from ctk.toolkit.case.graphs.value_types import (
    META_KEY,
    node_value_json,
    symbol_of,
    tensor_value_json,
)
from ctk.toolkit.reduce.analysis import Facts
from ctk.toolkit.reduce.dimensions.relations import Assignment
from ctk.toolkit.reduce.dimensions.size_places import SizePlace, literals_of, map_arguments
from ctk.toolkit.reduce.dimensions.windows import narrow, window
from ctk.toolkit.reduce.eager_values import TensorInfo
from ctk.toolkit.reduce.graph_changes import forget_value
from ctk.toolkit.reduce.validity import Checked, can_run
from ctk.toolkit.reduce.value_edits import is_strided

Starts = Callable[[SizePlace, int], int]
"""Returns the start of a window in a dimension of a new size."""


def with_sizes(
    case: Case, facts: Facts, sizes: Assignment, *, checked: Checked, starts: Starts
) -> Case | None:
    """Return the case with these sizes; None if an eager run shows that it is not valid.

    Args:
        sizes: The changed sizes; all others stay.
        starts: Where windows begin.
    """
    graph = _with_literals(case.graph, sizes)
    _cut_constants(case.graph, graph, sizes, starts)
    own = dict(zip(input_names(case.graph), case.inputs, strict=True))
    inputs = _cut_inputs(own, sizes, starts)
    _record(case.graph, graph, tuple(inputs.values()))
    result = dataclasses.replace(case, graph=graph, inputs=tuple(inputs.values()))
    indices = _Indices(case, facts, sizes, checked)
    fitted = {name: indices.fit(name, value) for name, value in inputs.items()}
    if all(fitted[name] is value for name, value in inputs.items()):
        return result if checked.is_sure or can_run(result, case, facts) is not False else None
    if can_run(result, case, facts):
        return result
    return dataclasses.replace(result, inputs=tuple(fitted.values()))


def _with_literals(gm: GraphModule, sizes: Assignment) -> GraphModule:
    copy = copy_graph_module(gm)
    for path, graph in graphs_by_path(copy).items():
        for node in graph.graph.nodes:
            forget_value(node)
            if node.op in CALLS:
                node.args, node.kwargs = map_arguments(
                    node, path, lambda number, place: sizes.get(place, number)
                )
        graph.recompile()
    return copy


def _cut_constants(old: GraphModule, new: GraphModule, sizes: Assignment, starts: Starts) -> None:
    """Replace constants by windows; a constant that is held twice stays one tensor."""
    made: dict[tuple[int, Any], torch.Tensor] = {}
    graphs = graphs_by_path(new)
    for path, graph in graphs_by_path(old).items():
        for node in graph.graph.find_nodes(op="get_attr"):
            target, value = str(node.target), fetch(graph, node.target)
            if not isinstance(value, torch.Tensor):
                continue
            kept = _window_of(value, SizePlace("constant", path, target), sizes, starts)
            if kept is not None:
                key = (id(value), kept[1])
                made[key] = made[key] if key in made else window(value, *kept)
                _set_attribute(graphs[path], target, made[key])


def _set_attribute(gm: GraphModule, target: str, value: torch.Tensor) -> None:
    holder, _, name = target.rpartition(".")
    owner = gm.get_submodule(holder)
    is_buffer = name in dict(owner.named_buffers(recurse=False))
    persistent = name in owner.state_dict(keep_vars=True)
    delattr(owner, name)
    if is_buffer:
        owner.register_buffer(name, value, persistent=persistent)
    else:
        setattr(owner, name, value)


Window = tuple[tuple[int, ...], tuple[int, ...]]
"""The starts and the sizes of the window of a tensor."""


def _window_of(
    tensor: torch.Tensor, place: SizePlace, sizes: Assignment, starts: Starts
) -> Window | None:
    """Return the window of a tensor to keep; None if it stays as it is."""
    places = [place.at(dim) for dim in range(tensor.dim())]
    new = tuple(sizes.get(p, size) for p, size in zip(places, tensor.shape, strict=True))
    if new == tuple(tensor.shape):
        return None
    return tuple(starts(p, size) for p, size in zip(places, new, strict=True)), new


def _cut_inputs(
    inputs: Mapping[str, object], sizes: Assignment, starts: Starts
) -> dict[str, object]:
    """Return the inputs with their windows; inputs that share memory still do."""
    owners: dict[int, list[str]] = {}
    for name, value in inputs.items():
        if isinstance(value, torch.Tensor) and is_strided(value):
            owners.setdefault(storage_of(value), []).append(name)
    result: dict[str, object] = dict(inputs)
    for names in owners.values():
        tensors = {name: value for name in names if isinstance(value := inputs[name], torch.Tensor)}
        windows = {
            name: kept
            for name, value in tensors.items()
            if (kept := _window_of(value, SizePlace("input", "", name), sizes, starts))
        }
        if len(names) == 1:
            result |= {name: window(tensors[name], *kept) for name, kept in windows.items()}
        elif windows:
            result |= _cut_shared(tensors, windows)
    numbers = {p.name: size for p, size in sizes.items() if p.kind == "number"}
    return result | numbers


def _cut_shared(
    tensors: Mapping[str, torch.Tensor], windows: Mapping[str, Window]
) -> dict[str, torch.Tensor]:
    """Return windows of tensors on one memory, as views of one copy of it."""
    clones = clone_inputs(list(tensors.values()))
    result: dict[str, torch.Tensor] = {}
    for (name, old), clone in zip(tensors.items(), clones, strict=True):
        assert isinstance(clone, torch.Tensor)
        part = narrow(clone.detach(), *windows[name]) if name in windows else clone
        result[name] = part.requires_grad_(old.requires_grad)
    return result


@dataclass(frozen=True, slots=True)
class _Indices:
    """Keeps integer inputs within the range that they index, as far as sizes show it.

    The indexed tensor is guessed: it is read together with the input, or with integers made of it,
    and a size of it was above the largest value and is no longer.
    """

    case: Case
    facts: Facts
    sizes: Assignment
    checked: Checked

    def fit(self, name: str, value: object) -> object:
        """Return an input with values below the new size of the indexed dimension."""
        if not _is_index(value) or not isinstance(value, torch.Tensor):
            return value
        largest = int(value.max())
        bounds = [new for old, new in self._pairs(name) if 0 < new <= largest < old]
        return value.remainder(min(bounds)) if bounds else value

    def _pairs(self, name: str) -> Iterator[tuple[int, int]]:
        """Yield old and new sizes of tensors that are read together with an input."""
        reached = {name}
        for node in self.case.graph.graph.nodes:
            sources = [operand.name for operand in node.all_input_nodes]
            if reached.isdisjoint(sources):
                continue
            for source in sources:
                if source not in reached:
                    now = _shape(self.checked.infos.get(source))
                    yield from zip(_shape(self.facts.infos.get(source)), now, strict=False)
            for place, number in literals_of(node, ""):
                yield number, self.sizes.get(place, number)
            info = self.facts.infos.get(node.name)
            if isinstance(info, TensorInfo) and not info.dtype.is_floating_point:
                reached.add(node.name)


def _shape(info: object) -> Sequence[int]:
    return info.shape if isinstance(info, TensorInfo) else ()


def _is_index(value: object) -> bool:
    if not isinstance(value, torch.Tensor) or value.layout != torch.strided or value.is_meta:
        return False
    kinds = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8)
    return value.dtype in kinds and value.numel() > 0


def _record(old: GraphModule, new: GraphModule, inputs: Sequence[object]) -> None:
    for before, node, value in zip(placeholders(old), placeholders(new), inputs, strict=True):
        symbol = symbol_of(before)
        if isinstance(value, torch.Tensor):
            node.meta[META_KEY] = tensor_value_json(value, node_value_json(before))
        elif symbol is not None:
            node.meta[META_KEY] = {"symbol": symbol, "hint": value}
