"""Compile an entry point: through the pipeline, into data, with no work left for the first call."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch

from ctk.compiler.codegen import CODEGEN_OPTIONS
from ctk.compiler.codegen.schedule.generator import KernelOptions, with_config
from ctk.compiler.codegen.select import generators
from ctk.compiler.errors import ArtifactError, ConfigError
from ctk.compiler.options.config import Config
from ctk.compiler.packages.exported_program import Traced
from ctk.compiler.packages.input_guard import Condition, InputGuard
from ctk.compiler.passes import PASSES
from ctk.compiler.pipeline import Compile, require_supported_platform
from ctk.compiler.rewriting.numbering import Numbering
from ctk.compiler.rewriting.stage_passes import select_passes
from ctk.compiler.runtime.compiled_graph import CompiledGraph
from ctk.compiler.sizes.size_guards import NotLowered, size_of_expression, symbols_of
from ctk.compiler.torch_compat.aot import exported
from ctk.compiler.torch_compat.fake import fake_tensors as fake

_REFUSED: Mapping[str, object] = {
    "freezing": True,
    "freezing_discard": True,
}


def compile_traced(traced: Traced, config: Config) -> tuple[CompiledGraph, InputGuard]:
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
    compile_ = Compile(options, None, passes, Numbering(None, options), traced.graph, traced.inputs)
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
    found: list[Condition] = []
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
            found.append(Condition(sides[0], relation, sides[1]))
    return tuple(found)


_RELATIONS = {
    "Equality": "==",
    "Unequality": "!=",
    "StrictLessThan": "<",
    "LessThan": "<=",
    "StrictGreaterThan": ">",
    "GreaterThan": ">=",
}
