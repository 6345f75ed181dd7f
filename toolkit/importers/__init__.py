"""Import programs, archives, scripts and tests as cases.

To add an importer, write one file with an `IMPORTER` and one line in `IMPORTERS`.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from ctk.compiler.errors import (
    CaptureError,
    CtkError,
    EagerError,
    NoSuchCase,
    ProgramError,
    count_of,
)
from ctk.toolkit.case.case import Case
from ctk.toolkit.case.trust.demands import CodeNames, demands_of
from ctk.toolkit.case.usercode.program import UserProgram
from ctk.toolkit.importers import case_folder, exported, program, pytest_test, torch_repro
from ctk.toolkit.importers.base import Importer, Source
from ctk.toolkit.importers.in_memory import Inputs, Value, source_of
from ctk.toolkit.options import CaseOptions

IMPORTERS: tuple[type[Importer], ...] = (
    pytest_test.IMPORTER,
    torch_repro.IMPORTER,
    program.IMPORTER,
    exported.IMPORTER,
    case_folder.IMPORTER,
)
"""In order of precedence; the first importer that accepts a name loads it."""

AS_IT_IS = CaseOptions()

Subject = str | Path | Value
"""The subject of an operation: a name for an importer, a case, a graph, a callable."""


@dataclass(frozen=True, slots=True)
class Loaded:
    """A loaded subject.

    Attributes:
        cases: In the order of the program's graphs; none if Dynamo gives none of the program.
        program: Returns the program of the graphs; None for cases and graphs.
        uncaptured: The error of the capture, if there are no cases.
        is_untrusted: Whether the cases come from a folder that the user does not trust, and run
            none of the user's own code. Modules, targets and passes that the user names may run a
            debugger, so they get no limits.
    """

    source: Source
    cases: list[Case]
    program: Callable[[], UserProgram] | None = None
    uncaptured: CtkError | None = None
    is_untrusted: bool = False


def load_cases(
    subject: Subject, inputs: Inputs | None = None, request: CaseOptions = AS_IT_IS
) -> list[Case]:
    """Return the cases of a program, graph or folder, in the order of the program's graphs.

    Args:
        subject: A name that an importer accepts, a `Case`, a `GraphModule`, or any callable.
        inputs: The inputs of one call; for a graph and a callable only.
        request: Choices that override those of the case or program.

    Returns:
        At least one case.

    Raises:
        ProgramError: The program cannot be loaded, fails in eager, or has inputs already.
        CaseError: No such folder, it cannot be read, or there is no graph of that number.
        ConfigError, TargetError: An option is not allowed, or the target is unknown.
    """
    loaded = load_subject(subject, inputs, request)
    if loaded.uncaptured is not None:
        raise loaded.uncaptured
    return loaded.cases


def load_subject(
    subject: Subject, inputs: Inputs | None = None, request: CaseOptions = AS_IT_IS
) -> Loaded:
    """Return the program and its cases; a program may have no graph.

    Raises:
        CtkError: As `load_cases`, except for a program without a graph (`Loaded.uncaptured`).
    """
    source = find_source(subject, inputs)
    is_program = source.is_program and request.graph is None
    program = source.program if is_program else None
    try:
        cases = _load(source, request)
    except (CaptureError, EagerError) as error:
        if not is_program:
            raise
        return Loaded(source, [], program, error)
    is_foreign = source.is_case_folder and not request.trust and not request.allow_imports
    runs_users_code = any(demands_of(CodeNames(case.target, case.config)) for case in cases)
    return Loaded(source, cases, program, is_untrusted=is_foreign and not runs_users_code)


def find_source(subject: Subject, inputs: Inputs | None = None) -> Source:
    """Return the source of a subject; nothing of it is loaded yet.

    Raises:
        ProgramError: It has inputs of its own, and `inputs` are given.
        CaseError: There is no importer for the name.
    """
    if isinstance(subject, str | Path):
        source = _importer_of(str(subject))(str(subject))
    else:
        source = source_of(subject, inputs)
    if inputs is not None and isinstance(subject, str | Path | Case):
        raise ProgramError(
            f"{source.name} has inputs of its own; pass some with a callable or a GraphModule only"
        )
    return source


def _load(source: Source, request: CaseOptions) -> list[Case]:
    """Return the requested cases of a source."""
    cases = source.cases(request)
    if request.strides is not None:
        wanted = request.strides
        cases = [replace(case, modes=replace(case.modes, strides=wanted)) for case in cases]
    if request.graph is None:
        return cases
    if request.graph >= len(cases):
        raise NoSuchCase(
            f"graph {request.graph}: {source.spec or source.name} has "
            f"{count_of(len(cases), 'graph')}, numbered from 0"
        )
    return [cases[request.graph]]


def _importer_of(spec: str) -> type[Importer]:
    if not spec.strip():
        raise NoSuchCase("the name of the CASE is empty; for all cases of this folder: .")
    for importer in IMPORTERS:
        if importer.accepts(spec):
            return importer
    forms = ", ".join(importer.form for importer in IMPORTERS)
    raise NoSuchCase(f"nothing can load {spec}; loadable are: {forms}")
