"""From what the user typed (a case folder, a dump, FILE.py) to the cases to work on.

Loads and captures; judges nothing. The options given on the command line win over what a case
folder or a program says.
"""

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ctk.compiler.errors import CaseError
from ctk.toolkit.cli.options import parse_config

if TYPE_CHECKING:
    from ctk.toolkit.case.case import Case


@dataclass(frozen=True, slots=True)
class Request:
    """What the user asked a command to work on.

    Attributes:
        subject: A case folder, a dump folder, or `FILE.py[:build,example]`.
        target: Target spec; None for the case's own.
        config: The `KEY=VALUE` strings.
        backward: Whether the failure needs the backward pass.
        dynamic: Whether a program is captured with symbolic sizes.
        graph: Which graph of several, from 0; None for all.
        allow_import: Modules that loading a case may import.
    """

    subject: str
    target: str | None = None
    config: Sequence[str] | None = None
    backward: bool = False
    dynamic: bool = False
    graph: int | None = None
    allow_import: Sequence[str] | None = None


def load_cases(request: Request) -> list["Case"]:
    """Return the cases of a request, in the order of the program's graphs; at least one.

    Raises:
        ProgramError: The program cannot be loaded.
        CaseError: No such folder, it holds no case, it cannot be read, or there is no graph of
        that number. ConfigError, TargetError: An option is not allowed, or the target is unknown.
    """
    cases = from_program(request) if is_program(request.subject) else from_folder(request)
    return cases if request.graph is None else [chosen(cases, request)]


def is_program(subject: str) -> bool:
    """Return whether `subject` names a Python file, with or without functions, and no folder."""
    file, _, _ = subject.rpartition(":")
    return not Path(subject).is_dir() and (subject.endswith(".py") or file.endswith(".py"))


def from_program(request: Request) -> list["Case"]:
    """Capture each graph of a program."""
    from ctk.toolkit.importers.program import capture_cases
    from ctk.toolkit.targets import resolve_target
    from ctk.toolkit.usercode.program import load_program

    target = request.target or "ctk"
    config = parse_config(request.config)
    resolve_target(target)  # an unknown name is told before the model is built
    program = load_program(request.subject)
    return capture_cases(
        program, target=target, config=config, backward=request.backward, dynamic=request.dynamic
    )


def from_folder(request: Request) -> list["Case"]:
    """Load the case of a folder, or each case of a dump, and apply the command line's options."""
    from ctk.toolkit.case.store import load_case

    allowed = tuple(request.allow_import or ())
    folders = case_folders(Path(request.subject))
    return [overridden(load_case(folder, allow_imports=allowed), request) for folder in folders]


def case_folders(folder: Path) -> list[Path]:
    """Return `folder` itself if it is a case, else the cases below it.

    Raises:
        CaseError: No such folder, or there is no finished case in it.
    """
    from ctk.toolkit.cli.listing import find_entries

    if not folder.is_dir():
        raise CaseError(
            f"no such folder: {folder}\n  see what there is: ctk ls {nearest_parent(folder)}"
        )
    if (folder / "manifest.json").exists():
        return [folder]
    found = [entry.path for entry in find_entries(folder) if entry.problem is None]
    if not found:
        raise CaseError(
            f"no case in {folder}: it has no manifest.json\n  look at it: ctk ls {folder}"
        )
    return found


def nearest_parent(path: Path) -> Path:
    """Return the nearest folder above `path` that exists."""
    return next((parent for parent in path.parents if parent.is_dir()), Path())


def overridden(case: "Case", request: Request) -> "Case":
    """Return the case with the command line's options; a changed case has no signature."""
    from ctk.toolkit.targets import resolve_target

    changes: dict[str, object] = {}
    config = parse_config(request.config)
    if request.target and request.target != case.target:
        changes = {"target": resolve_target(request.target).name, "config": config}
    elif config:
        changes = {"config": {**case.config, **config}}
    if request.backward and not case.modes.backward:
        changes["modes"] = dataclasses.replace(case.modes, backward=True)
    return dataclasses.replace(case, **changes, signature=None) if changes else case


def chosen(cases: Sequence["Case"], request: Request) -> "Case":
    """Return the case that `--graph N` names.

    Raises:
        CaseError: There are fewer graphs.
    """
    number = request.graph or 0
    if number >= len(cases):
        raise CaseError(
            f"--graph {number}: {request.subject} has {len(cases)} graph(s), numbered from 0"
        )
    return cases[number]
