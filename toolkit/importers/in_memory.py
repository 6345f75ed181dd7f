"""Cases of Python objects: a callable with example inputs, a graph, a case."""

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import torch
from torch.fx import GraphModule

from ctk.compiler.errors import ProgramError, count_of
from ctk.compiler.fx.inputs import flatten_inputs
from ctk.compiler.usercode.python_files import working_folder
from ctk.repro_templates.program.program_play import SEED
from ctk.toolkit.case.case import Case
from ctk.toolkit.case.graphs.value_types import describe_dynamic
from ctk.toolkit.case.roles import roles_of
from ctk.toolkit.case.usercode.named_sources import source_files
from ctk.toolkit.case.usercode.program import UserProgram
from ctk.toolkit.execution.modes import current_modes
from ctk.toolkit.execution.private_copy import private_copy
from ctk.toolkit.importers.base import Source, apply_request, check_request
from ctk.toolkit.importers.program import capture_requested, replace_symbols
from ctk.toolkit.options import CaseOptions

Value = Case | Callable[..., object]
Inputs = Sequence[object] | Mapping[str, object] | torch.Tensor
"""The arguments of one call: positional ones, keywords, or a single tensor."""


def source_of(value: Value, inputs: Inputs | None) -> Source:
    """Return the source of a value and the inputs of one call of it."""
    if isinstance(value, Case):
        return StoredCase(value)
    if isinstance(value, GraphModule) and not has_leaf_modules(value):
        return Graph(value, inputs)
    return Call(value, inputs)


@dataclass(frozen=True, slots=True)
class StoredCase(Source):
    """A `Case` that the caller has."""

    case: Case

    @property
    def name(self) -> str:
        return self.case.name

    def cases(self, request: CaseOptions) -> list[Case]:
        return [apply_request(self.case, request)]


@dataclass(frozen=True, slots=True)
class Graph(Source):
    """A graph without leaf modules, which is copied, and the inputs of one call."""

    gm: GraphModule
    inputs: Inputs | None

    @property
    def name(self) -> str:
        return function_name(self.gm)

    def cases(self, request: CaseOptions) -> list[Case]:
        """Return the case of the graph.

        Raises:
            ProgramError: Inputs are missing, or are not those of the graph.
        """
        inputs = _need(self.inputs, self.name)
        check_request(request)
        return [case_of_graph(self.gm, inputs, request)]


@dataclass(frozen=True, slots=True)
class Call(Source):
    """Any other callable, which Dynamo captures, and the inputs of one call."""

    function: Callable[..., object]
    inputs: Inputs | None
    is_program = True

    @property
    def name(self) -> str:
        return function_name(self.function)

    def cases(self, request: CaseOptions) -> list[Case]:
        program = self.program()
        check_request(request)
        return capture_requested(program, request)

    def program(self) -> UserProgram:
        """Return the callable as a program.

        Raises:
            ProgramError: It is not callable, or inputs are missing.
        """
        if not callable(self.function):
            raise ProgramError(
                f"{type(self.function).__name__} is not a program: pass a callable, a GraphModule, "
                "a Case, or the path of a program or a case folder"
            )
        return program_of(self.function, _need(self.inputs, self.name))


def _need(inputs: Inputs | None, name: str) -> Inputs:
    if inputs is None:
        raise ProgramError(f"example inputs are missing: pass those of one call of {name}")
    return inputs


def case_of_graph(gm: GraphModule, inputs: Inputs, request: CaseOptions) -> Case:
    """Return the case of one graph with values for its placeholders, under the current modes."""
    given = _positional(inputs)
    flat = flatten_inputs(gm, given)
    gm, given = (gm, given) if flat is None else (flat.graph, flat.inputs)
    values = replace_symbols(given)
    wanted = [node.name for node in gm.graph.nodes if node.op == "placeholder"]
    if len(values) != len(wanted):
        raise ProgramError(
            f"the graph takes {count_of(len(wanted), 'input')} ({', '.join(wanted)}), and got "
            f"{len(values)}"
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
        sources=source_files(target, config, working_folder()),
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
