"""Copy the user's own passes and backends next to a repro, and point its config at the copies.

A reference is `path/to/file.py:function` or `module:function`. It is rewritten to
`sources/file.py:function` when the file is one of `Case.sources`, or is found as the user's own
(not of an installed package). Anything else stays as it is: the repro then imports it from the
environment.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from ctk.compiler.errors import CaseError
from ctk.toolkit.case.case import Case
from ctk.toolkit.formats.files import replace_file
from ctk.toolkit.usercode.sources import place_sources, source_files, strings_in

FOLDER = "sources"
REFERENCE = re.compile(r"(?P<place>[\w./~+-]+):[A-Za-z_][\w.]*")


@dataclass(frozen=True, slots=True)
class SourcePlan:
    """What a repro needs of the user's own code.

    Attributes:
        target: The target spec, its file replaced by `sources/...`.
        config: The config, likewise.
        copies: Each file to copy, by its name inside `sources/`.
    """

    target: str
    config: dict[str, object]
    copies: Mapping[str, Path]

    @property
    def references(self) -> tuple[str, ...]:
        """The strings in the config that have the form `place:function`."""
        return tuple(
            dict.fromkeys(text for text in strings_in(self.config) if REFERENCE.fullmatch(text))
        )


def plan_sources(case: Case) -> SourcePlan:
    """Decide which files go along with a case's repro.

    Raises:
        CaseError: A listed source is missing.
    """
    for path in case.sources:
        if not path.is_file():
            raise CaseError(f"source {path} of case {case.name} does not exist: put it back")
    names = {path.name for path in case.sources}
    found = source_files(case.target, case.config, Path.cwd())
    copies = place_sources([*case.sources, *(path for path in found if path.name not in names)])
    config = cast("dict[str, object]", _rewrite(dict(case.config), copies))
    return SourcePlan(_rewrite_reference(case.target, copies), config, copies)


def copy_sources(plan: SourcePlan, folder: Path) -> None:
    """Copy the files to `folder/sources`, each atomically; one that is the copy itself stays."""
    for name, path in plan.copies.items():
        place = folder / FOLDER / name
        place.parent.mkdir(parents=True, exist_ok=True)
        if path.resolve() != place.resolve():
            replace_file(place, path.read_bytes())


def _rewrite(value: object, copies: Mapping[str, Path]) -> object:
    if isinstance(value, Mapping):
        items = cast("Mapping[str, object]", value).items()
        return {key: _rewrite(item, copies) for key, item in items}
    if isinstance(value, (list, tuple)):
        return [_rewrite(item, copies) for item in cast("Sequence[object]", value)]
    return _rewrite_reference(value, copies) if isinstance(value, str) else value


def _rewrite_reference(reference: str, copies: Mapping[str, Path]) -> str:
    """Return `sources/file.py:function` for a reference to a copy, else the reference."""
    match = REFERENCE.fullmatch(reference)
    if match is None:
        return reference
    name = _known(match["place"], copies)
    return f"{FOLDER}/{name}:{reference.rpartition(':')[2]}" if name else reference


def _known(place: str, copies: Mapping[str, Path]) -> str | None:
    """Return the copy that `place` (a path or a module) names."""
    wanted = Path(place if place.endswith(".py") else f"{place.replace('.', '/')}.py")
    for name, path in copies.items():
        if path.resolve() == wanted.resolve() or path.parts[-len(wanted.parts) :] == wanted.parts:
            return name
    return wanted.name if wanted.name in copies else None
