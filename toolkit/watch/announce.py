"""The text for a failing watched compile: the failure, its folder, and the next commands."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from ctk.compiler.options.choices import InputsMode
from ctk.toolkit.case.admission import command_on
from ctk.toolkit.case.case import Case
from ctk.toolkit.case.raise_site import root_error
from ctk.toolkit.targets.base import Target


@dataclass(frozen=True, slots=True)
class Subject:
    """The compiler of a watched graph, and its options.

    Attributes:
        config: Its options in the program; may hold functions.
        importable: Whether another process can find the target by its name.
        in_script: Whether target or options are defined in the running script: importing them
            here means running it. A case carries only their definitions.
        lost: Options that a case cannot hold: functions without a name.
    """

    target: Target
    config: Mapping[str, object]
    saved_config: Mapping[str, object] = field(default_factory=dict[str, object])
    sources: tuple[Path, ...] = ()
    importable: bool = True
    in_script: bool = False
    lost: tuple[str, ...] = ()

    @property
    def can_recompile(self) -> bool:
        """Whether another compile can load the target by its name, without side effects."""
        return self.importable and not self.in_script and not self.lost

    @property
    def advice(self) -> str:
        """The step before a command can compile the case; empty if there is none."""
        module = "put it into a module, such as backend.py"
        if not self.importable:
            return f"no command can import the backend: {module}, and use --target backend:NAME"
        if self.lost:
            options = ", ".join(self.lost)
            return f"no command has the function in {options}: {module}, and run the script again"
        return ""


def describe_failure(
    case: Case,
    folder: Path,
    kept: InputsMode,
    details: Sequence[str] = (),
    *,
    advice: str = "",
) -> str:
    """Return the announcement of a failure; its first line can stand alone.

    Args:
        advice: Replaces the commands that would not work (`Subject.advice`).
    """
    commands = [
        f"reproduce:  {command_on('repro', folder, case)}",
        f"minimize:   {command_on('minify', folder, case)}",
        f"all of it:  {command_on('diagnose', folder, case)}",
    ]
    lines = [
        f"ctk: {case.name} fails with target {case.target}: {case.signature}",
        *(f"  {detail}" for detail in details),
        f"  saved in {folder}",
        *(f"  {line}" for line in ([advice] if advice else commands)),
    ]
    if kept == "none":
        lines.append("  its inputs are not saved: run again with CTK_INPUTS=recipe or full")
    elif kept == "recipe" and case.signature and case.signature.is_numeric:
        lines.append("  its inputs are saved as a recipe; to keep the values: CTK_INPUTS=full")
    return "\n".join(lines)


def describe_dumps(target: str, folder: Path) -> str:
    """Return the instructions for the dumps of a program, whether or not anything fails."""
    return (
        f"ctk: the graphs of target {target} are saved in {folder}\n"
        f"  list them:  {command_on('ls', folder)}\n"
        f"  compare:    {command_on('check', folder / 'graph0')}"
    )


def note_saved(error: BaseException, case: Case, folder: Path, advice: str = "") -> bool:
    """Add a note with the saved case to an exception; return False if it has the note already."""
    root = root_error(error)
    following = f"{folder}; {advice}" if advice else command_on("diagnose", folder, case)
    note = f"ctk saved this as a case; all of it: {following}"
    if note in getattr(root, "__notes__", ()):
        return False
    root.add_note(note)
    setattr(root, _FOLDER, folder)
    return True


def saved_folder(error: BaseException) -> Path | None:
    """Return the folder of the case that a watched program has saved of an exception."""
    return getattr(root_error(error), _FOLDER, None)


_FOLDER = "ctk_case_folder"
"""Attribute of an exception: the folder of its case."""
