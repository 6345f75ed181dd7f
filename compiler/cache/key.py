"""The key of a compile: everything that its result depends on, in named parts.

    graph             digest of the captured graph as canonical text
    inputs            symbols, parameters and inputs: types, layouts, aliases, not their numbers
    config.NAME       each option that differs from the default
    pass.STAGE.N      the user's N-th pass of a stage: digest of its code and options
    operator.NAME     an operator of the program's own: digest of its schema and traced code
    version.NAME      ctk (its own text), torch, triton, python, the C compiler, ...
    machine.NAME      the features of the processor, and of the GPU if the inputs are on one
    ambient.NAME      modes and switches of torch in this thread and process
    settings.MODULE   digest of the settings of torch's compilers
    environment       variables that the generators' tools read

Equal keys mean the same compile, in any process on such a machine. A part that cannot be known
makes the compile `Uncacheable`; the message names it. No part holds an address, a time, a path of
this machine or a number that Dynamo gives per process. Guards on sizes are not in the key: each
entry holds its own.
"""

import hashlib
from collections.abc import Iterator, Mapping, Sequence

import torch
from torch.fx import GraphModule

from ctk.compiler.artifacts import versions
from ctk.compiler.dispatch.decomposition_table import decomposition_table
from ctk.compiler.errors import Uncacheable
from ctk.compiler.fx.canonical import CanonicalGraph, canonical_graph
from ctk.compiler.fx.literals import text_of
from ctk.compiler.fx.walk import placeholders
from ctk.compiler.observe import Stage
from ctk.compiler.options.config import Config
from ctk.compiler.rewriting.stage_passes import Step
from ctk.compiler.rewriting.user_passes import FunctionPass
from ctk.compiler.torch_compat.aot import aot_runtime
from ctk.compiler.torch_compat.aot.aot_data import NoDataForm
from ctk.compiler.torch_compat.dynamo import tensor_sources
from ctk.compiler.torch_compat.fake import fake_tensors as fake
from ctk.compiler.torch_compat.fake import tensor_facts
from ctk.compiler.torch_compat.process import trace_state
from ctk.compiler.usercode.identity import identity_of

Passes = Mapping[Stage, Sequence[Step]]

_SHOWN = 300
"""A longer text is a digest in the key."""


def key_parts(
    gm: GraphModule, example_inputs: Sequence[object], config: Config, passes: Passes
) -> dict[str, str]:
    """Return the parts of the key of a compile.

    Raises:
        Uncacheable: The compile cannot be kept; the message has the reason.
    """
    for reason in trace_state.reasons():
        raise Uncacheable(reason)
    if config.freezing:
        raise Uncacheable("parameters become constants (freezing)")
    graph = canonical_graph(gm)
    parts = {"graph": _digest(graph.text), "inputs": _inputs(gm, example_inputs)}
    parts |= dict(_operators(graph))
    parts |= dict(_options(config))
    parts |= dict(_passes(passes))
    parts |= dict(_ambient())
    return parts | versions.version_parts() | versions.machine_parts(_devices(gm, example_inputs))


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _short(text: str) -> str:
    return text if len(text) <= _SHOWN else _digest(text)


def _inputs(gm: GraphModule, example_inputs: Sequence[object]) -> str:
    static = "".join("01"[tensor_sources.is_static(node)] for node in placeholders(gm))
    try:
        traced = fake.inputs_of_trace(example_inputs)
        named = aot_runtime.parameters_of(gm)
        lines = tensor_facts.describe_inputs(named, traced, example_inputs)
        return _short("\n".join([*lines, f"static {static}"]))
    except NoDataForm as error:
        raise Uncacheable(str(error)) from error


def _operators(graph: CanonicalGraph) -> Iterator[tuple[str, str]]:
    for name, operator in graph.operators.items():
        yield f"operator.{name}", identity_of(operator, f"the operator {name}")


def _options(config: Config) -> Iterator[tuple[str, str]]:
    for name, value in config.differences().items():
        if name != "custom_passes":
            yield f"config.{name}", _short(text_of(value))
    table = decomposition_table(config.decompositions) if config.decompositions else {}
    for operator, function in table.items():
        code = getattr(function, "__wrapped__", function)
        if not code.__module__.startswith("torch."):
            what = f"the decomposition of {operator}"
            yield f"decomposition.{operator}", identity_of(code, what)


def _passes(passes: Passes) -> Iterator[tuple[str, str]]:
    """Yield the passes of the user; the text of ctk covers the built-in ones."""
    for stage, steps in passes.items():
        own = [each for each in steps if _is_users(each)]
        for place, step in enumerate(own):
            code = step.function if isinstance(step, FunctionPass) else step
            digest = identity_of(code, f"the pass {step.name}")
            at = [each.name for each in steps].index(step.name)
            yield f"pass.{stage}.{place}", f"{step.name} {at} {step.numerics} {digest}"


def _is_users(step: Step) -> bool:
    return isinstance(step, FunctionPass) or not type(step).__module__.startswith("ctk.")


def _ambient() -> Iterator[tuple[str, str]]:
    for name, value in trace_state.ambient_state().items():
        yield f"ambient.{name}", value
    for module, settings in trace_state.compiler_settings().items():
        yield f"settings.{module}", identity_of(settings, f"a setting of {module}")


def _devices(gm: GraphModule, example_inputs: Sequence[object]) -> tuple[torch.device, ...]:
    values = [*aot_runtime.parameters_of(gm).values(), *example_inputs]
    devices = {value.device for value in values if isinstance(value, torch.Tensor)}
    return tuple(sorted(devices, key=str))
