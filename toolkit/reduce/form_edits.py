"""Edits of the forms of tensors: dtype, layout, device and gradient."""

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeVar, cast

import torch
from torch.fx import Node
from torch.fx.node import map_aggregate

from ctk.compiler.fx.clone import clone_inputs
from ctk.compiler.fx.copy import copy_graph_module
from ctk.compiler.fx.walk import graphs_by_path, input_names, placeholders
from ctk.toolkit.case.case import Case
from ctk.toolkit.case.graphs.value_types import (
    META_KEY,
    node_value_json,
    symbol_of,
    tensor_value_json,
)
from ctk.toolkit.case.roles import HELD
from ctk.toolkit.reduce.analysis import Facts, has_gradient
from ctk.toolkit.reduce.graph_changes import forget_value, with_constants, with_inputs
from ctk.toolkit.reduce.validity import reject_invalid
from ctk.toolkit.reduce.value_edits import changeable, tensors_of

Kind = TypeVar("Kind")

CASTS: Mapping[str, torch.dtype] = {
    "double": torch.float64, "float": torch.float32, "half": torch.float16,
    "bfloat16": torch.bfloat16, "long": torch.int64, "int": torch.int32, "short": torch.int16,
}  # fmt: skip
"""Methods of tensors that name a dtype."""


@dataclass(frozen=True, slots=True)
class ConvertDtypes:
    """Use other dtypes in place of some, through the whole graph: pairs (before, after)."""

    pairs: tuple[tuple[torch.dtype, torch.dtype], ...]

    def says(self) -> str:
        pairs = (f"{_short(before)} -> {_short(after)}" for before, after in self.pairs)
        return f"{', '.join(pairs)} everywhere"

    def apply(self, case: Case, facts: Facts) -> Case | None:
        table = dict(self.pairs)
        wanted = {name: table.get(t.dtype, t.dtype) for name, t in tensors_of(case).items()}
        new = _convert(case, wanted)
        if new is None:
            return None
        methods = {name: _method(table.get(dtype, dtype)) for name, dtype in CASTS.items()}

        def change(node: Node) -> None:
            _change_literals(node, torch.dtype, lambda dtype: table.get(dtype, dtype))
            if node.op == "call_method":
                node.target = methods.get(str(node.target)) or node.target

        return reject_invalid(rewritten(case, new, change), case, facts)


@dataclass(frozen=True, slots=True)
class ConvertTensors:
    """Give some inputs and constants another dtype; the graph stays as it is."""

    names: tuple[str, ...]
    dtype: torch.dtype

    def says(self) -> str:
        return f"{', '.join(self.names)}: {_short(self.dtype)}"

    def apply(self, case: Case, facts: Facts) -> Case | None:
        new = _convert(case, dict.fromkeys(self.names, self.dtype))
        return None if new is None else reject_invalid(rewritten(case, new), case, facts)


@dataclass(frozen=True, slots=True)
class MoveToCpu:
    """Move the whole case to the CPU: tensors, and every device that the graph names."""

    def says(self) -> str:
        return "everything on the CPU"

    def apply(self, case: Case, facts: Facts) -> Case | None:
        cpu = torch.device("cpu")
        tensors = tensors_of(case)
        moved = {n: _like(t, t.detach().to(cpu)) for n, t in tensors.items() if t.device != cpu}
        if not moved.keys() <= changeable(case).keys():
            return None

        def change(node: Node) -> None:
            _change_literals(node, torch.device, lambda device: cpu)
            if node.op == "call_method" and node.target == "cuda":
                node.target, node.args, node.kwargs = "cpu", node.args[:1], {}
            if isinstance(node.kwargs.get("device"), str):
                node.kwargs = {**node.kwargs, "device": "cpu"}

        modes = dataclasses.replace(case.modes, default_device="")
        return reject_invalid(
            rewritten(dataclasses.replace(case, modes=modes), moved, change), case, facts
        )


@dataclass(frozen=True, slots=True)
class MakeContiguous:
    """Lay inputs and constants out in row-major order, each in memory of its own."""

    names: tuple[str, ...]

    def says(self) -> str:
        return f"{', '.join(self.names)}: contiguous"

    def apply(self, case: Case, facts: Facts) -> Case | None:
        tensors = tensors_of(case)
        copies = {name: _like(tensors[name], _contiguous(tensors[name])) for name in self.names}
        return reject_invalid(rewritten(case, copies), case, facts)


@dataclass(frozen=True, slots=True)
class DropGradients:
    """Make plain tensors of inputs that are parameters or require gradients."""

    names: tuple[str, ...]

    def says(self) -> str:
        return f"{', '.join(self.names)}: no gradient"

    def apply(self, case: Case, facts: Facts) -> Case | None:
        tensors = tensors_of(case)
        plain = {name: tensors[name].detach() for name in self.names}
        roles = {name: role for name, role in case.roles.items() if name not in self.names}
        result = with_inputs(case, plain, keep_parameters=False)
        result = dataclasses.replace(result, roles=roles)
        return None if case.modes.backward and not has_gradient(result) else result


def _short(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def _method(dtype: torch.dtype) -> str | None:
    return next((name for name, cast in CASTS.items() if cast == dtype), None)


def _change_literals(node: Node, kind: type[Kind], change: Callable[[Kind], object]) -> None:
    def new(value: object) -> object:
        return change(value) if isinstance(value, kind) else value

    node.args = map_aggregate(node.args, new)  # type: ignore[assignment]  # a tuple stays one
    node.kwargs = map_aggregate(node.kwargs, new)  # type: ignore[assignment]  # likewise


def _convert(case: Case, wanted: Mapping[str, torch.dtype]) -> dict[str, torch.Tensor] | None:
    """Return the tensors whose dtype changes; None if one of them shares memory."""
    tensors, own = tensors_of(case), changeable(case)
    new = {n: tensors[n] for n, dtype in wanted.items() if tensors[n].dtype != dtype}
    if any(name not in own and tensor.numel() for name, tensor in new.items()):
        return None
    return {name: _like(tensor, _in_dtype(tensor, wanted[name])) for name, tensor in new.items()}


def _in_dtype(tensor: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Return a tensor in another dtype, with its strides and offset."""
    (new,) = clone_inputs([tensor.detach()], convert=lambda _: dtype)
    return cast("torch.Tensor", new)


def _like(old: torch.Tensor, new: torch.Tensor) -> torch.Tensor:
    needs = old.requires_grad and (new.is_floating_point() or new.is_complex())
    if isinstance(old, torch.nn.Parameter):
        return torch.nn.Parameter(new, requires_grad=needs)
    return new.requires_grad_(needs)


def _contiguous(tensor: torch.Tensor) -> torch.Tensor:
    plain = tensor.detach().resolve_conj().resolve_neg()
    return torch.empty(plain.shape, dtype=plain.dtype, device=plain.device).copy_(plain)


def rewritten(
    case: Case,
    tensors: Mapping[str, torch.Tensor],
    change: Callable[[Node], None] | None = None,
    *,
    inside: bool = True,
) -> Case | None:
    """Return a case with other tensors and changed nodes, without recorded metadata of values.

    Args:
        inside: Change nodes of sub-graphs too.
    """
    graph = copy_graph_module(case.graph)
    for path, each in graphs_by_path(graph).items():
        for node in each.graph.nodes:
            if symbol_of(node) is None:
                forget_value(node)
            if change and (inside or not path):
                change(node)
        each.recompile()
    pairs = zip(input_names(case.graph), case.inputs, strict=True)
    inputs = tuple(tensors.get(name, value) for name, value in pairs)
    olds = map(node_value_json, placeholders(case.graph))
    for old, node, value in zip(olds, placeholders(graph), inputs, strict=True):
        if isinstance(value, torch.Tensor) and not value.is_nested:
            node.meta[META_KEY] = tensor_value_json(value, old)
    result = dataclasses.replace(case, graph=graph, inputs=inputs)
    held = {n.removeprefix(HELD): value for n, value in tensors.items() if n.startswith(HELD)}
    return with_constants(result, held) if held else result
