"""The contract of an importer: load one kind of file or name of a command line as cases.

An importer loads and captures; it does not judge.
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
"""Default number of calls of a program without `warmups()`."""


@dataclass(frozen=True, slots=True)
class Request:
    """Choices for the compile of cases; they override those of a case or program.

    Attributes:
        target: Target spec; None for the case's own, and `ctk` for a program.
        config: Options of the target.
        backward: Run the backward pass and compare gradients.
        dynamic: Capture a program with symbolic sizes.
        graph: Which graph of several, from 0; None for all.
        allow_imports: Modules that loading a case may import.
        trust: Whether the user trusts the author of a case folder.
        calls: Minimum number of calls of a program to compare with eager ones.
        strides: Whether strides that differ from eager's are a failure.
        isolate: Whether questions are asked in children; a program on a GPU is then captured in a
            child.
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
    """Return the request for some keywords.

    Args:
        options: The keywords; those without a field in `Request` are left to the operation.
        known: Every keyword of the operation.

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
    """Check the types of values, for scripts that no type checker has seen.

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
    """An importer of one kind of subject.

    Attributes:
        form: Its notation (`FILE.py`); shown when no importer accepts a name.
        accepts: Whether a name is of this kind. Reads the name and the disk, loads nothing.
        load: Returns the cases, in the order of the program's graphs; at least one, or it raises
            a `CtkError` that names the missing part.
        program: Returns the program of a name, to compare its compiled calls with its eager ones;
            None: this kind holds graphs only.
    """

    form: str
    accepts: Callable[[str], bool]
    load: Callable[[str, Request], list[Case]]
    program: Callable[[str], Program] | None = None


def overridden(case: Case, request: Request) -> Case:
    """Return the case with the choices of the request; a changed case has no signature.

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
