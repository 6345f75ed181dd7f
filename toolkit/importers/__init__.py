"""From anything that users have to cases.

Adding a kind of thing is one file with an `IMPORTER` and one line in `IMPORTERS`.
"""

from collections.abc import Sequence
from pathlib import Path

from ctk.compiler.errors import CaseError, ProgramError
from ctk.toolkit.case.case import Case
from ctk.toolkit.importers import case_folder, program
from ctk.toolkit.importers.base import Importer, Request
from ctk.toolkit.importers.in_memory import Inputs, Value, cases_of, function_name
from ctk.toolkit.trust.demands import Words, demands_of

IMPORTERS: tuple[Importer, ...] = (program.IMPORTER, case_folder.IMPORTER)
"""In the order in which they are asked; the first that accepts a name loads it."""

AS_IT_IS = Request()

Subject = str | Path | Value
"""What operations of the library work on: a name for an importer, a case, a graph, a callable."""


def load_cases(
    subject: Subject, inputs: Inputs | None = None, request: Request = AS_IT_IS
) -> list[Case]:
    """Return the cases of a program, graph or folder, in the order of the program's graphs.

    Args:
        subject: A name that an importer accepts, a `Case`, a `GraphModule`, or any callable.
        inputs: Those of one call; for a graph and a callable only.
        request: What wins over the case's or program's own choices.

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
    if request.graph is None:
        return cases
    if request.graph >= len(cases):
        raise CaseError(
            f"graph {request.graph}: {subject} has {len(cases)} graph(s), numbered from 0"
        )
    return [cases[request.graph]]


def are_strangers(cases: Sequence[Case], subject: Subject, request: Request) -> bool:
    """Return whether anybody may have made these cases, and no code of the user's runs in them.

    So it is for a folder that is not trusted, unless the user names own modules, targets or passes:
    somebody may sit in a debugger there.
    """
    if request.trust or request.allow_imports or not isinstance(subject, str | Path):
        return False
    is_folder = _importer_of(str(subject)) is case_folder.IMPORTER
    return is_folder and not any(demands_of(Words(case.target, case.config)) for case in cases)


def name_of(subject: Subject) -> str:
    """Return a name for folders: `graph0` for `dumps/train_1/graph0`, `net` for `net.py:f,x`."""
    if isinstance(subject, Case):
        return subject.name
    if not isinstance(subject, str | Path):
        return function_name(subject)
    file, _, _ = str(subject).rpartition(":")
    path = Path(file if file.endswith(".py") else subject).expanduser().resolve()
    return path.stem if path.suffix == ".py" else path.name


def _importer_of(spec: str) -> Importer:
    for importer in IMPORTERS:
        if importer.accepts(spec):
            return importer
    forms = ", ".join(importer.form for importer in IMPORTERS)
    raise CaseError(f"nothing can load {spec}; what can be loaded: {forms}")
