"""The contract of an importer: load one kind of file or name of a command line as cases."""

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass

from ctk.toolkit.case.case import Case
from ctk.toolkit.case.usercode.program import UserProgram
from ctk.toolkit.importers.module_tensors import hold_module_tensors
from ctk.toolkit.options import CaseOptions
from ctk.toolkit.targets import resolve_target, target_of


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
    load: Callable[[str, CaseOptions], list[Case]]
    program: Callable[[str], UserProgram] | None = None


def apply_request(case: Case, request: CaseOptions) -> Case:
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
    if target_of(changed.target).freezes(changed.config) and not changed.modes.grad:
        return hold_module_tensors(changed)
    return changed
