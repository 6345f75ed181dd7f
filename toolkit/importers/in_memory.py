"""Cases of Python objects: a callable with example inputs, a graph, a case."""

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import cast

import torch
from torch.fx import GraphModule

from ctk.compiler.errors import ProgramError
from ctk.repro_templates.program.program_play import SEED
from ctk.toolkit.case.case import Case
from ctk.toolkit.case.graphs.value_types import describe_dynamic
from ctk.toolkit.case.roles import roles_of
from ctk.toolkit.case.usercode.named_sources import source_files
from ctk.toolkit.case.usercode.program import UserProgram
from ctk.toolkit.execution.modes import current_modes
from ctk.toolkit.execution.private_copy import private_copy
from ctk.toolkit.importers.base import apply_request
from ctk.toolkit.importers.program import capture_cases, replace_symbols
from ctk.toolkit.options import CaseOptions
from ctk.toolkit.targets import resolve_target

Value = Case | Callable[..., object]
Inputs = Sequence[object] | Mapping[str, object] | torch.Tensor
"""The arguments of one call: positional ones, keywords, or a single tensor."""


def cases_of(value: Value, inputs: Inputs | None, request: CaseOptions) -> list[Case]:
    """Return the cases of a value, in the order of its graphs.

    Cases: 1. a `Case` is returned; 2. a `GraphModule` without leaf modules is one graph, and is
    copied; 3. Dynamo captures any other callable with `inputs`.

    Raises:
        ProgramError: Inputs are missing, or are not those of the graph.
    """
    if isinstance(value, Case):
        return [apply_request(value, request)]
    if not callable(value):
        raise ProgramError(
            f"{type(value).__name__} is not a program: pass a callable, a GraphModule, a Case, "
            "or the path of a program or a case folder"
        )
    if inputs is None:
        raise ProgramError(
            f"example inputs are missing: pass those of one call of {function_name(value)}"
        )
    if request.target is not None:
        resolve_target(request.target)  # raises for an unknown name before the capture
    if isinstance(value, GraphModule) and not has_leaf_modules(value):
        return [case_of_graph(value, inputs, request)]
    return capture_cases(
        program_of(value, inputs),
        target=request.target or "ctk",
        config=request.config,
        backward=request.backward,
        dynamic=request.dynamic,
    )


def program_in(value: Value, inputs: Inputs | None) -> UserProgram | None:
    """Return a callable and its inputs as a program; None for a case, and for a graph."""
    is_graph = isinstance(value, GraphModule) and not has_leaf_modules(value)
    if inputs is None or isinstance(value, Case) or is_graph or not callable(value):
        return None
    return program_of(value, inputs)


def case_of_graph(gm: GraphModule, inputs: Inputs, request: CaseOptions) -> Case:
    """Return the case of one graph with values for its placeholders, under the current modes."""
    values = replace_symbols(_positional(inputs))
    wanted = [node.name for node in gm.graph.nodes if node.op == "placeholder"]
    if len(values) != len(wanted):
        raise ProgramError(
            f"the graph takes {len(wanted)} inputs ({', '.join(wanted)}), but {len(values)} "
            "were given"
        )
    target, config = request.target or "ctk", dict(request.config or {})
    modes = current_modes(seed=SEED, backward=request.backward)
    graph, owned = private_copy(gm, values, lazy=False)
    return Case(
        graph=graph,
        inputs=owned,
        target=target,
        config=config,
        modes=modes,
        sources=source_files(target, config, Path.cwd()),
        dynamic=describe_dynamic(gm),
        roles=roles_of(gm, values),
    )


def has_leaf_modules(gm: GraphModule) -> bool:
    """Return whether a graph calls plain modules (`torch.fx.symbolic_trace` leaves them)."""
    return any(
        node.op == "call_module" and not isinstance(gm.get_submodule(str(node.target)), GraphModule)
        for node in gm.graph.nodes
    )


def program_of(function: Callable[..., object], inputs: Inputs) -> UserProgram:
    """Return a callable and its inputs as a program; its file is that of its definition."""
    kwargs: Mapping[str, object] = {}
    if isinstance(inputs, Mapping):
        kwargs, inputs = inputs, ()
    return UserProgram(
        function, _positional(inputs), {}, function_name(function), _file(function), kwargs
    )


def _positional(inputs: object) -> tuple[object, ...]:
    if isinstance(inputs, Mapping):
        raise ProgramError("a graph takes its inputs by position, not by keyword")
    if isinstance(inputs, torch.Tensor):
        return (inputs,)
    if isinstance(inputs, str) or not isinstance(inputs, Iterable):
        raise ProgramError(
            f"inputs is a {type(inputs).__name__}: pass a list or tuple of one call's inputs, "
            "one tensor, or a dict of keywords"
        )
    return tuple(cast("Iterable[object]", inputs))


def function_name(function: Callable[..., object]) -> str:
    """Return the name of a function, or of the class of a module."""
    return str(getattr(function, "__name__", type(function).__name__))


def _file(function: Callable[..., object]) -> Path:
    defined = function if inspect.isroutine(function) else type(function)
    try:
        return Path(inspect.getsourcefile(defined) or "program").resolve()
    except TypeError:  # a built-in
        return Path("program").resolve()
