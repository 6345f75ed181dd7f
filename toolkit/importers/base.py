"""The contract of an importer: from something that users have to cases.

An importer reads one kind of thing that can be named on a command line. It loads and captures; it
judges nothing.
"""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypedDict, get_type_hints

from ctk.compiler.errors import ConfigError, nearest
from ctk.toolkit.case.case import Case
from ctk.toolkit.case.usercode.program import Program
from ctk.toolkit.importers.module_tensors import holding_what_its_module_holds
from ctk.toolkit.targets import resolve_target, traits_of


class CaseOptions(TypedDict, total=False):
    """The keywords of every operation that takes a program or a case; see `Request`."""

    target: str | None
    config: Mapping[str, object] | None
    backward: bool
    dynamic: bool
    graph: int | None
    allow_imports: Sequence[str]
    trust: bool
    calls: int
    strides: bool


CALLS = 2
"""Calls that are made of a program that says nothing of earlier ones."""


@dataclass(frozen=True, slots=True)
class Request:
    """How the cases are to be compiled; what is given here wins over what a case or program says.

    Attributes:
        target: Target spec; None for the case's own, and `ctk` for a program.
        config: Options of the target.
        backward: Run the backward pass too, and compare gradients.
        dynamic: Capture a program with symbolic sizes.
        graph: Which graph of several, from 0; None for all.
        allow_imports: Modules that loading a case may import.
        trust: Whether the user trusts who made a case folder; a program of the user needs none.
        calls: How many calls of a program are made at least, to compare them with eager ones.
        strides: Whether strides of results that differ from eager's are a failure.
        isolate: Whether questions are asked in children: then a program on a GPU is captured in
            one, too.
    """

    target: str | None = None
    config: Mapping[str, object] | None = None
    backward: bool = False
    dynamic: bool = False
    graph: int | None = None
    allow_imports: Sequence[str] = ()
    trust: bool = False
    calls: int = CALLS
    strides: bool = True
    isolate: bool | None = None


def request_of(options: CaseOptions, known: type[CaseOptions] = CaseOptions) -> Request:
    """Return the request that some keywords make.

    Args:
        options: The keywords; those that `Request` does not have are left to the operation.
        known: Every keyword that the operation takes.

    Raises:
        TypeError: A keyword is unknown.
        ConfigError: A value is of another type than its keyword's.
    """
    allowed = get_type_hints(known)
    for name in options:
        if name not in allowed:
            raise TypeError(f"unexpected keyword argument {name!r}{nearest(name, allowed)}")
    own = {field.name for field in dataclasses.fields(Request)}
    chosen: dict[str, Any] = {name: value for name, value in options.items() if name in own}
    _check_types(chosen)
    return Request(**chosen)


def _check_types(chosen: Mapping[str, Any]) -> None:
    """Refuse what a type checker would have refused; many scripts are never type-checked.

    Raises:
        ConfigError: A value is of another type than its keyword's.
    """
    target, config, graph = (chosen.get(name) for name in ("target", "config", "graph"))
    for name in ("trust", "strides"):
        if not isinstance(chosen.get(name, False), bool):
            raise ConfigError(f"{name} is {chosen[name]!r}; it must be True or False")
    if target == "":
        raise ConfigError("the target is empty; leave it out for the case's own, or name one")
    if not isinstance(target, str | None):
        raise ConfigError(
            f"target is a {type(target).__name__}; name it: 'inductor', 'my_module:my_backend' or "
            "'path/to/file.py:my_backend'"
        )
    if not isinstance(config, Mapping | None):
        raise ConfigError(
            f"config is a {type(config).__name__}; it must be a dict of the target's options, such "
            "as {'fuel': 3}"
        )
    calls = chosen.get("calls", CALLS)
    if not isinstance(calls, int) or calls < 1:
        raise ConfigError(f"calls is {calls!r}; it must be how many calls are made, from 1")
    if graph is not None and (not isinstance(graph, int) or graph < 0):
        raise ConfigError(f"graph is {graph!r}; it must be the number of a graph, from 0")


@dataclass(frozen=True, slots=True)
class Importer:
    """One kind of thing that cases are made of.

    Attributes:
        form: How a user names it (`FILE.py`); shown when no importer accepts a name.
        accepts: Whether a name is of this kind. Looks at the name and at the disk, loads nothing.
        load: Returns the cases, in the order of the program's graphs; at least one, or it raises
            a `CtkError` that says what is missing.
        program: Returns the program that a name means, to compare its compiled calls with its eager
            ones; None: this kind of thing is no program, only graphs.
    """

    form: str
    accepts: Callable[[str], bool]
    load: Callable[[str, Request], list[Case]]
    program: Callable[[str], Program] | None = None


def overridden(case: Case, request: Request) -> Case:
    """Return the case as the request wants it; a case that is changed has no signature.

    Raises:
        TargetError: The requested target is unknown.
    """
    changes: dict[str, object] = {}
    config = dict(request.config or {})
    if request.target and request.target != case.target:
        changes = {"target": resolve_target(request.target).name, "config": config}
    elif config:
        changes = {"config": {**case.config, **config}}
    if request.backward and not case.modes.backward:
        changes["modes"] = dataclasses.replace(case.modes, backward=True)
    if not changes:
        return case
    changed = dataclasses.replace(case, **changes, signature=None)
    if traits_of(changed.target).freezes(changed.config) and not changed.modes.grad:
        return holding_what_its_module_holds(changed)
    return changed
