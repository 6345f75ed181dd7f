"""The contracts of the importers: a source of cases, and one kind of name on a command line."""

import dataclasses
from pathlib import Path
from typing import ClassVar, Protocol

from ctk.compiler.errors import ProgramError, UnknownPass
from ctk.toolkit.case.case import Case
from ctk.toolkit.case.usercode.program import UserProgram
from ctk.toolkit.importers.module_tensors import hold_module_tensors
from ctk.toolkit.options import CaseOptions
from ctk.toolkit.targets import resolve_target, target_of


class Source(Protocol):
    """The subject of an operation: a subclass overrides the members that differ from these.

    Attributes:
        is_program: Whether it has a program, to compare its compiled calls with its eager ones.
        is_case_folder: Whether it was written by ctk, maybe for another person.
    """

    is_program: bool = False
    is_case_folder: bool = False

    @property
    def name(self) -> str:
        """A name for folders: `graph0` for `dumps/train_1/graph0`, `net` for `net.py:f,x`."""
        ...

    @property
    def spec(self) -> str | None:
        """Its name on the command line; None for an object of the caller."""
        return None

    def cases(self, request: CaseOptions) -> list[Case]:
        """Return the cases, in the order of the program's graphs; at least one.

        Raises:
            CtkError: A part is missing; the message names it.
        """
        ...

    def program(self) -> UserProgram:
        """Load the program; each call loads another one.

        Raises:
            ProgramError: It cannot be loaded, or there is none (`is_program`).
        """
        raise ProgramError(f"{self.name} is not a program")


class Importer(Source, Protocol):
    """A source with a name of one kind; an instance is the thing of that name.

    Attributes:
        form: The notation of its names (`FILE.py`); shown when no importer accepts a name.
    """

    form: ClassVar[str]
    text: str

    def __init__(self, text: str) -> None:
        self.text = text

    @staticmethod
    def accepts(spec: str) -> bool:
        """Return whether a name is of this kind. Reads the name and the disk, loads nothing."""
        ...

    @property
    def spec(self) -> str:
        return self.text

    @property
    def name(self) -> str:
        file, _, _ = self.spec.rpartition(":")
        path = Path(file if file.endswith(".py") else self.spec).expanduser().resolve()
        return path.stem if path.suffix in (".py", ".pt2", ".txt") else path.name


def check_request(request: CaseOptions, *, brings_options: bool = False) -> None:
    """Refuse an unknown target, option or pass before anything is loaded or captured.

    Args:
        brings_options: Whether the subject may have options of its own, which may bring passes.

    Raises:
        TargetError: There is no target of that name.
        ConfigError: It does not take the options of the request.
    """
    target = resolve_target(request.target or "ctk")
    try:
        target.check_config(request.config or {})
    except UnknownPass:
        if not brings_options:
            raise


def apply_request(case: Case, request: CaseOptions) -> Case:
    """Return the case with the choices of the request; a changed case has no signature.

    Raises:
        TargetError: The requested target is unknown.
        ConfigError: The target does not take the options.
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
    if "config" in changes:
        resolve_target(changed.target).check_config(changed.config)
    if target_of(changed.target).freezes(changed.config) and not changed.modes.grad:
        return hold_module_tensors(changed)
    return changed
