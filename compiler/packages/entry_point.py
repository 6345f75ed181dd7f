"""An entry point: a program of torch.export as a captured graph, then compiled to data.

The graph has its guard, its weights and its results; the compile leaves no work for the first call.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor
from torch.fx import GraphModule, Node

from ctk.compiler.codegen import CODEGEN_OPTIONS
from ctk.compiler.codegen.schedule.generator import KernelOptions, with_config
from ctk.compiler.codegen.select import generators
from ctk.compiler.errors import ArtifactError, ConfigError
from ctk.compiler.fx.copy import copy_graph_module
from ctk.compiler.fx.types import value_of
from ctk.compiler.options.config import Config
from ctk.compiler.packages.input_guard import (
    Condition,
    Dimension,
    FixedInput,
    Input,
    InputGuard,
    NumberInput,
    TensorInput,
    places_of,
)
from ctk.compiler.passes import PASSES
from ctk.compiler.pipeline import Compile, UserFunctions, require_supported_platform
from ctk.compiler.rewriting.numbering import Numbering
from ctk.compiler.rewriting.stage_passes import select_passes
from ctk.compiler.runtime.compiled_graph import CompiledGraph
from ctk.compiler.sizes.size_guards import (
    NotLowered,
    size_of,
    size_of_expression,
    sizes_of,
    symbols_of,
)
from ctk.compiler.torch_compat.aot import exported
from ctk.compiler.torch_compat.fake import fake_tensors as fake

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
    output_kinds = exported.spec_kinds_of(signature.output_specs)
    written = {target for kind, _, target, _ in output_kinds if kind in _WRITTEN}
    for kind, name, target, fixed in exported.spec_kinds_of(signature.input_specs):
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
    dimensions: dict[str, Dimension] = {}
    for each in inputs:
        for place, size in places_of(each):
            for symbol in symbols_of([size]):
                name = symbol.name
                known = dimensions.setdefault(name, Dimension(name, *ranges.get(name, (0, None))))
                if known.name == name and str(size) == name:
                    dimensions[name] = replace(known, name=place)
    return dimensions


def _write_back(
    gm: GraphModule, program: torch.export.ExportedProgram
) -> list[int | tuple[object]]:
    """Make a graph write the values that the program changes, and return only its results."""
    (output,) = gm.graph.find_nodes(op="output")
    places = {
        target or name: name
        for kind, name, target, _ in exported.spec_kinds_of(program.graph_signature.input_specs)
        if kind != "fixed"
    }
    nodes = {node.name: node for node in gm.graph.find_nodes(op="placeholder")}
    returned: list[Node] = []
    results: list[int | tuple[object]] = []
    kinds = exported.spec_kinds_of(program.graph_signature.output_specs)
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


_REFUSED: Mapping[str, object] = {
    "freezing": True,
    "freezing_discard": True,
}


def compile_traced(
    traced: Traced, config: Config, user: UserFunctions
) -> tuple[CompiledGraph, InputGuard]:
    """Compile a graph to data; its guard also checks the sizes that the compile assumed.

    Raises:
        ArtifactError: It has no form as data; the message has the part that has none.
        ConfigError: An option makes no sense for a package.
        Exception: Any error of the pipeline.
    """
    require_supported_platform()
    for name, value in _REFUSED.items():
        if getattr(config, name) == value:
            raise ConfigError(f"{name}={value!r} is not for packages: their weights stay apart")
    options = config.patch(
        {
            "fallback": ("eager",),
            "on_failure": "raise",
            "kernels.ahead_of_time": True,
            "kernels.background": False,  # the caller waits for all of it
        }
    )
    if with_config(KernelOptions(), options).cuda_graphs:
        raise ConfigError(
            "kernels.cuda_graphs=true is not for packages, which hold no recording: record calls "
            "of the loaded package with torch.cuda.graph"
        )
    generators(options)
    passes = select_passes(PASSES, options, CODEGEN_OPTIONS)
    mode = fake.mode_of(traced.inputs) or fake.new_fake_mode()
    known = len(exported.guard_expressions(mode))
    numbering = Numbering(None, options)
    compile_ = Compile(options, None, passes, numbering, traced.graph, traced.inputs, user=user)
    with torch.no_grad(), exported.wrappers_noted(mode) as wrappers:
        compile_.compile()
        reasons = list(wrappers())
    if reasons:
        raise ArtifactError(f"the program cannot be a package: {'; '.join(reasons)}")
    graph = compile_.made["forward"].ctk_data()
    if len(graph.schedule.inputs) != len(traced.inputs):
        raise ArtifactError(
            f"the program cannot be a package: tracing made {len(graph.schedule.inputs)} inputs "
            f"of {len(traced.inputs)}"
        )
    return graph, replace(traced.guard, conditions=_conditions(traced, mode, known))


def _conditions(traced: Traced, mode: Any, known: int) -> tuple[Condition, ...]:
    symbolic = [
        size
        for value in traced.inputs
        for size in (value.shape if isinstance(value, torch.Tensor) else (value,))
        if isinstance(size, torch.SymInt)
    ]
    conditions: list[Condition] = []
    for expression in exported.guard_expressions(mode, known):
        relation = _RELATIONS.get(type(expression).__name__)
        try:
            if relation is None:
                raise NotLowered("it is not a comparison")
            sides = [size_of_expression(side, symbolic[0]) for side in expression.args]
        except (NotLowered, IndexError) as error:
            raise ArtifactError(
                f"the compile assumes {expression} of sizes, which a package cannot check "
                f"({error}): export the program with sizes for which it always holds"
            ) from error
        asked = {symbol.name for symbol in symbols_of(sides)}
        if asked <= set(traced.guard.dimensions):
            conditions.append(Condition(sides[0], relation, sides[1]))
    return tuple(conditions)


_RELATIONS = {
    "Equality": "==",
    "Unequality": "!=",
    "StrictLessThan": "<",
    "LessThan": "<=",
    "StrictGreaterThan": ">",
    "GreaterThan": ">=",
}
