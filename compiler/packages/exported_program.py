"""A program of torch.export as a captured graph, with its guard, its weights and its results."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor
from torch.fx import GraphModule, Node

from ctk.compiler.errors import ArtifactError
from ctk.compiler.fx.copy import copy_graph_module
from ctk.compiler.fx.types import value_of
from ctk.compiler.packages.input_guard import (
    Dimension,
    FixedInput,
    Input,
    InputGuard,
    NumberInput,
    TensorInput,
    places_of,
)
from ctk.compiler.sizes.size_guards import NotLowered, size_of, sizes_of, symbols_of
from ctk.compiler.torch_compat.aot import exported

aten = torch.ops.aten

_WEIGHTS = ("parameter", "buffer", "constant_tensor")
_WRITTEN = ("buffer_mutation", "user_input_mutation", "parameter_mutation")


@dataclass(frozen=True, slots=True)
class Traced:
    """An entry point before it is compiled.

    Attributes:
        graph: Takes weights, then inputs; writes to the tensors that the program changes.
        inputs: Fake values of its placeholders.
        weights: The values of the first placeholders, in order, by name.
        guard: The guard of the other placeholders.
        results: Leaves of the result: a number is a position among the results of the graph; a
            fixed value is a tuple of one.
        in_spec: The nesting of `(args, kwargs)`.
        out_spec: The nesting of the result.
    """

    graph: GraphModule
    inputs: Sequence[Any]
    weights: Mapping[str, Tensor]
    guard: InputGuard
    results: Sequence[int | tuple[object]]
    in_spec: Any
    out_spec: Any

    def computed(self) -> list[Any]:
        """Return the fake values of the results that the graph computes."""
        (output,) = self.graph.graph.find_nodes(op="output")
        return [value_of(node) for node in output.args[0]]


def trace_program(program: torch.export.ExportedProgram) -> Traced:
    """Return an exported program as a graph to compile.

    Raises:
        ArtifactError: It has an input or a result that a package cannot hold; the message names it.
    """
    functional = exported.functional(program)
    gm = copy_graph_module(functional.graph_module)
    nodes = {node.name: node for node in gm.graph.find_nodes(op="placeholder")}
    kept: list[Node] = []
    weights: dict[str, Tensor] = {}
    inputs: list[Input] = []
    signature = functional.graph_signature
    output_kinds = exported.kinds_of(signature.output_specs)
    written = {target for kind, _, target, _ in output_kinds if kind in _WRITTEN}
    for kind, name, target, fixed in exported.kinds_of(signature.input_specs):
        node = nodes[name]
        if kind == "fixed":
            inputs.append(FixedInput(name, fixed))
            gm.graph.erase_node(node)
            continue
        kept.append(node)
        if kind in _WEIGHTS:
            assert target is not None
            value = exported.value_of(functional, target)
            assert isinstance(value, Tensor)
            weights[target] = value
        elif kind == "user_input":
            inputs.append(_input(name, node.meta["val"], is_written=name in written))
        else:
            raise ArtifactError(f"the input {name} is a {kind}: packages cannot hold that")
    results = _write_back(gm, functional)
    gm.graph.lint()
    gm.recompile()
    specs = functional.call_spec.in_spec, functional.call_spec.out_spec
    guard = InputGuard(tuple(inputs), _dimensions(inputs, exported.ranges(functional)))
    for symbol in guard.unknown_sizes():
        raise ArtifactError(
            f"no size of an input alone determines {symbol}: pass it as an int as well, or export "
            "the program with sizes that vary by themselves"
        )
    return Traced(gm, [node.meta["val"] for node in kept], weights, guard, results, *specs)


def _input(name: str, value: object, *, is_written: bool) -> Input:
    try:
        if isinstance(value, Tensor):
            shape, strides = sizes_of(value.shape), sizes_of(value.stride())
            return TensorInput(name, value.dtype, value.device, shape, strides, is_written)
        if isinstance(value, torch.SymInt):
            return NumberInput(name, size_of(value))
    except NotLowered as error:
        raise ArtifactError(f"the input {name}: {error}") from error
    raise ArtifactError(f"the input {name} is a {type(value).__name__}: packages cannot take that")


def _dimensions(
    inputs: Sequence[Input], ranges: Mapping[str, tuple[int, int | None]]
) -> dict[str, Dimension]:
    """Return the sizes that vary, named after an input dimension of that size, else as in torch."""
    found: dict[str, Dimension] = {}
    for each in inputs:
        for place, size in places_of(each):
            for symbol in symbols_of([size]):
                name = symbol.name
                known = found.setdefault(name, Dimension(name, *ranges.get(name, (0, None))))
                if known.name == name and str(size) == name:
                    found[name] = replace(known, name=place)
    return found


def _write_back(
    gm: GraphModule, program: torch.export.ExportedProgram
) -> list[int | tuple[object]]:
    """Make a graph write the values that the program changes, and return only its results."""
    (output,) = gm.graph.find_nodes(op="output")
    places = {
        target or name: name
        for kind, name, target, _ in exported.kinds_of(program.graph_signature.input_specs)
        if kind != "fixed"
    }
    nodes = {node.name: node for node in gm.graph.find_nodes(op="placeholder")}
    returned: list[Node] = []
    results: list[int | tuple[object]] = []
    kinds = exported.kinds_of(program.graph_signature.output_specs)
    for (kind, name, target, fixed), value in zip(kinds, output.args[0], strict=True):
        if kind in _WRITTEN:
            assert target is not None
            place = nodes[places[target]]
            with gm.graph.inserting_before(output):
                copied = gm.graph.call_function(aten.copy_.default, (place, value))
            copied.meta["val"] = place.meta["val"]
        elif kind == "fixed" or not isinstance(value, Node):
            results.append((fixed if kind == "fixed" else value,))
        elif kind in ("user_output", "loss_output"):
            results.append(len(returned))
            returned.append(value)
        else:
            raise ArtifactError(f"the result {name} is a {kind}: packages cannot hold that")
    output.args = (tuple(returned),)
    return results
