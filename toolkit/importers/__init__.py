"""Import programs, archives, scripts and tests as cases.

To add an importer, write one file with an `IMPORTER` and one line in `IMPORTERS`.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from ctk.compiler.errors import CaptureError, CaseError, CtkError, EagerError, ProgramError
from ctk.toolkit.case.case import Case
from ctk.toolkit.case.trust.demands import CodeNames, demands_of
from ctk.toolkit.case.usercode.program import UserProgram
from ctk.toolkit.importers import case_folder, exported, program, pytest_test, torch_repro
from ctk.toolkit.importers.base import Importer
from ctk.toolkit.importers.in_memory import Inputs, Value, cases_of, function_name, program_in
from ctk.toolkit.options import CaseOptions

IMPORTERS: tuple[Importer, ...] = (
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
    if inputs is not None and isinstance(subject, str | Path | Case):
        raise ProgramError(
            f"{name_of(subject)} has inputs of its own; pass some with a callable or a GraphModule "
            "only"
        )
    if isinstance(subject, str | Path):
        cases = _importer_of(str(subject)).load(str(subject), request)
    else:
        cases = cases_of(subject, inputs, request)
    if not request.strides:
        cases = [replace(case, modes=replace(case.modes, strides=False)) for case in cases]
    if request.graph is None:
        return cases
    if request.graph >= len(cases):
        raise CaseError(
            f"graph {request.graph}: {subject} has {len(cases)} graph(s), numbered from 0"
        )
    return [cases[request.graph]]


@dataclass(frozen=True, slots=True)
class Loaded:
    """A loaded subject.

    Attributes:
        program: Returns the program of the graphs; None for cases and graphs.
    """

    cases: list[Case]
    program: Callable[[], UserProgram] | None = None
    uncaptured: CtkError | None = None


def load_subject(
    subject: Subject, inputs: Inputs | None = None, request: CaseOptions = AS_IT_IS
) -> Loaded:
    """Return the program and its cases; a program may have no graph.

    Raises:
        CtkError: As `load_cases`, except for a program without a graph (`Loaded.uncaptured`).
    """
    program = _program_of(subject, inputs) if request.graph is None else None
    try:
        return Loaded(load_cases(subject, inputs, request), program)
    except (CaptureError, EagerError) as error:
        if program is None:
            raise
        return Loaded([], program, error)


def _program_of(subject: Subject, inputs: Inputs | None) -> Callable[[], UserProgram] | None:
    """Return a function that loads the program of a subject; None for cases and graphs."""
    if isinstance(subject, str | Path):
        load = _importer_of(str(subject)).program
        return partial(load, str(subject)) if load is not None else None
    found = program_in(subject, inputs)
    return (lambda: found) if found is not None else None


def is_untrusted(cases: Sequence[Case], subject: Subject, request: CaseOptions) -> bool:
    """Return whether the cases come from an untrusted folder and run none of the user's own code.

    Modules, targets and passes that the user names may run a debugger, so they get no limits.
    """
    if request.trust or request.allow_imports or not isinstance(subject, str | Path):
        return False
    is_folder = _importer_of(str(subject)) is case_folder.IMPORTER
    return is_folder and not any(demands_of(CodeNames(case.target, case.config)) for case in cases)


def name_of(subject: Subject) -> str:
    """Return a name for folders: `graph0` for `dumps/train_1/graph0`, `net` for `net.py:f,x`."""
    if isinstance(subject, Case):
        return subject.name
    if not isinstance(subject, str | Path):
        return function_name(subject)
    if pytest_test.accepts(str(subject)):
        return pytest_test.slug(str(subject))
    file, _, _ = str(subject).rpartition(":")
    path = Path(file if file.endswith(".py") else subject).expanduser().resolve()
    return path.stem if path.suffix in (".py", ".pt2", ".txt") else path.name


def _importer_of(spec: str) -> Importer:
    if not spec.strip():
        raise CaseError("the name of the CASE is empty; for all cases of this folder: .")
    for importer in IMPORTERS:
        if importer.accepts(spec):
            return importer
    forms = ", ".join(importer.form for importer in IMPORTERS)
    raise CaseError(f"nothing can load {spec}; loadable are: {forms}")
