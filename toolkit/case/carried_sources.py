"""The user's files in a case: select and copy them, and rename references to the copies.

A case must open in any folder, so it carries the files that its target and options name, and the
neighbours that these import, as `sources/...`:

    --target my.py:backend   saved as   sources/my.py:backend
                             loaded as  /where/the/case/is/sources/my.py:backend

A module (`my_passes:fold`) is imported by name if possible, else loaded from the copies. A copy
holds only the code that the names need (`usercode.slicing`).
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import cast

from ctk.compiler.errors import CaseError, StorageError
from ctk.compiler.usercode.python_files import (
    find_loaded,
    import_root,
    is_importable,
    working_folder,
)
from ctk.compiler.usercode.references import Reference
from ctk.toolkit.case.case import Case
from ctk.toolkit.case.formats.files import make_folder, replace_file
from ctk.toolkit.case.formats.scrub import find_scrubbed_lines, scrub
from ctk.toolkit.case.graphs.callables import (
    is_file,
    kernels_of_files,
    namespaces_of,
    own_files,
    registering_files,
)
from ctk.toolkit.case.manifest import MANIFEST, Manifest, map_strings
from ctk.toolkit.case.usercode.named_sources import place_sources, references_in, source_files
from ctk.toolkit.case.usercode.slicing import slice_files
from ctk.toolkit.case.usercode.source_file import NOTE

FOLDER = "sources"


@dataclass(frozen=True, slots=True)
class SourcePlan:
    """The user's files of a case, and their places in a folder.

    Attributes:
        copies: The file to copy, by its place in the folder (`sources/my.py`).
        listed: The places of `Case.sources` and of the files that target and options name; the
            other copies are their neighbours.
        registering: The places of files that register operators of the graph.
        modules: The places of the user's modules that the graph calls, by name.
    """

    target: str
    config: dict[str, object]
    copies: Mapping[str, Path]
    listed: tuple[str, ...] = ()
    texts: Mapping[str, bytes] = field(default_factory=dict[str, bytes])
    registering: tuple[str, ...] = ()
    modules: Mapping[str, str] = field(default_factory=dict[str, str])

    @property
    def search(self) -> tuple[str, ...]:
        """The folders from which a script imports the copies."""
        roots = (root_of_copy(name, Path(place)) for name, place in self.modules.items())
        others = [FOLDER] if self.copies else []
        return tuple(dict.fromkeys([*others, *(root.as_posix() for root in roots)]))

    @property
    def references(self) -> tuple[str, ...]:
        """The strings in the options that have the form `place:function`."""
        return tuple(f"{each.place}:{each.attribute}" for each in references_in(self.config))


def plan_sources(case: Case, *, modules: bool = False) -> SourcePlan:
    """Select the files that a case carries.

    Args:
        modules: Also name copies in place of modules (`my_passes:fold`).

    Raises:
        CaseError: A listed source is missing or unreadable, or an option is not a JSON value.
    """
    for path in case.sources:
        if not path.is_file():
            raise CaseError(f"source {path} of case {case.name} does not exist: put it back")
    operators, own = _registering(case), _own(case)
    files = _files(case, [*operators, *(path for path, _ in own.values())])
    roots = {path: root_of_copy(name, path) for name, (path, _) in own.items()}
    placed = {f"{FOLDER}/{place}": path for place, path in place_sources(files, roots).items()}
    cut = _cut(case, files, placed, operators, [*own.values()])
    copies = {place: path for place, path in placed.items() if path in cut}

    def rename(reference: Reference) -> str | None:
        found = _copy_of(reference, copies) if modules or reference.is_file else None
        return f"{found}:{reference.attribute}" if found else None

    target, config = _map_references(case.target, case.config, rename)
    listed = tuple(place for place, path in copies.items() if path in files)
    texts = {place: cut[path] for place, path in copies.items()}
    names = {path.name for path in operators}
    registering = tuple(place for place in listed if copies[place].name in names)
    by_path = {path: place for place, path in copies.items()}
    own_places = {name: by_path[path] for name, (path, _) in own.items() if path in by_path}
    return SourcePlan(target, config, copies, listed, texts, registering, own_places)


def _registering(case: Case) -> dict[Path, set[str]]:
    """Return the files that register operators; a deleted one (a notebook cell) is left out."""
    found: dict[Path, set[str]] = {}
    for path, spaces in registering_files(case.graph).items():
        place = _place_of(case, path)
        if place.is_file():
            found.setdefault(place, set()).update(spaces)
    return found


def _own(case: Case) -> dict[str, tuple[Path, set[str]]]:
    """Return the user's own modules that the graph calls; see `own_files`."""
    found = own_files(case.graph).items()
    return {name: (_place_of(case, path), functions) for name, (path, functions) in found}


def _place_of(case: Case, path: Path) -> Path:
    """Return the copy that a case has of a file, of which another may be loaded; else the file.

    A copy has the path of the file below its import root: `sources/lib/ops.py` of `lib/ops.py`. Of
    several the uppermost is the copy: `sources/ops.py` of `ops.py`.
    """
    listed = [each.resolve() for each in case.sources]
    alike = [each for each in listed if each.name == path.name and _is_copy(each)]
    if not alike or path in listed:
        return path
    parts = path.relative_to(import_root(path)).parts
    copies = (each for each in alike if each.parts[-len(parts) :] == parts)
    return min(copies, key=lambda each: len(each.parts), default=path)


def _is_copy(path: Path) -> bool:
    """Return whether a file lies among the sources of a saved case."""
    above = (each.parent for each in path.parents if each.name == FOLDER)
    return any((folder / MANIFEST).is_file() for folder in above)


def _cut(
    case: Case,
    files: Sequence[Path],
    placed: Mapping[str, Path],
    operators: Mapping[Path, set[str]],
    own: Sequence[tuple[Path, set[str]]],
) -> dict[Path, bytes]:
    """Return the content to copy of each file: all of it if only the case lists the file."""
    names: dict[Path, set[str]] = {path: set() for path in files}
    kernels = ((_place_of(case, p), each) for p, each in kernels_of_files(case.graph).items())
    for path, functions in [*own, *kernels]:
        if path in names:
            names[path] |= functions
    named = [*operators, *(path for path, _ in own)]
    spaces = namespaces_of(case.graph).union(*operators.values())
    for reference in references_in(case.target, case.config):
        place = _copy_of(reference, placed)
        if place and placed[place] in names:
            names[placed[place]].add(reference.attribute.partition(".")[0])
    wanted = {
        path: frozenset(found) if found or path in named else None for path, found in names.items()
    }
    try:
        return slice_files(wanted, spaces)
    except OSError as error:
        raise CaseError(
            f"source file {error.filename} of the case cannot be read: {error}"
        ) from error


def _files(case: Case, operators: Collection[Path]) -> list[Path]:
    """Return the sources of a case and the files of its references; the first copy counts."""
    listed = [path.resolve() for path in case.sources]
    references = references_in(case.target, case.config)
    by_path = {reference.path() for reference in references if reference.is_file}
    found = (*source_files(case.target, case.config, working_folder()), *operators)
    others = (path for path in found if path in by_path or _place_of(case, path) == path)
    return list(dict.fromkeys([*listed, *others]))


def copy_sources(plan: SourcePlan, folder: Path) -> None:
    """Copy the files into a folder; a file that is already there stays."""
    for name, path in plan.copies.items():
        place = folder / name
        _check_no_link(folder, place)
        make_folder(place.parent)
        if path != place.resolve():
            replace_file(place, _scrub_source(plan.texts[name]))


def _check_no_link(folder: Path, place: Path) -> None:
    """Refuse a folder of copies that is a link, which may lead out of the case folder."""
    for name in place.relative_to(folder).parents:
        part = folder / name
        if part != folder and part.is_symlink():
            raise StorageError(
                f"{part} is a link, and ctk does not write through links; next: remove it, or name "
                "another folder: --out DIR"
            )


def _scrub_source(data: bytes) -> bytes:
    """Return a source without secrets and home paths; a last comment lists the changed lines."""
    try:
        text = data.decode()
    except UnicodeDecodeError:  # declares another encoding: bytes below 128 mean the same in all
        text = data.decode("latin-1")
        return scrub(text).encode("latin-1")
    after = scrub(text)
    numbers = ", ".join(map(str, find_scrubbed_lines(text, after)))
    note = (
        f"\n{NOTE} secrets or home paths were taken out of line {numbers}: it may run differently\n"
    )
    return (after + note if numbers else after).encode()


def root_of_copy(module: str, copy: Path) -> Path:
    """Return the folder from which a module is imported whose file is given."""
    return copy.parents[module.count(".") + (copy.name == "__init__.py")]


def copies_of_modules(imports: Iterable[str], sources: Iterable[Path]) -> dict[str, Path]:
    """Return the folder of each module of which a case carries a copy."""
    found: dict[str, Path] = {}
    for module in imports:
        parts = module.split(".")
        for path in sources:
            own = path.parent.parts if path.name == "__init__.py" else path.with_suffix("").parts
            if not is_file(module) and list(own[-len(parts) :]) == parts:
                found[module] = root_of_copy(module, path)
    return found


def absolute_files(case: Case, imports: Iterable[str]) -> tuple[str, ...]:
    """Return modules and files to import; a deleted file is replaced by its copy."""

    def absolute(name: str) -> str:
        if is_file(name):
            return name if Path(name).is_file() else str(_place_of(case, Path(name).resolve()))
        own = None if is_importable(name) else find_loaded(name)
        return str(getattr(own, "__file__", None) or name)

    return tuple(map(absolute, imports))


def absolute_references(case: Case) -> tuple[str, dict[str, object]]:
    """Return target and options with absolute paths, for a process in another folder."""

    def absolute(reference: Reference) -> str | None:
        return f"{reference.path()}:{reference.attribute}" if reference.is_file else None

    return _map_references(case.target, case.config, absolute)


def resolve_references(manifest: Manifest, folder: Path) -> tuple[str, dict[str, object]]:
    """Return target and options of a loaded case: copies by absolute path, `~` expanded."""
    places = {name: (folder / name).resolve() for name in manifest.sources}

    def resolve(reference: Reference) -> str:
        place = reference.place if reference.is_file else f"{FOLDER}/{reference.place}.py"
        if place in places and (reference.is_file or not is_importable(reference.place)):
            return f"{places[place]}:{reference.attribute}"
        is_in_home = reference.place.startswith("~/")
        references = Path(reference.place).expanduser() if is_in_home else reference.place
        return f"{references}:{reference.attribute}"

    return _map_references(manifest.target, manifest.config, resolve)


def _map_references(
    target: str, config: Mapping[str, object], change: Callable[[Reference], str | None]
) -> tuple[str, dict[str, object]]:
    """Return target and options with other references; `change` returns None for the same one.

    Raises:
        CaseError: An option is not a JSON value.
    """

    def renamed(text: str) -> str:
        reference = Reference.parse(text)
        return (reference and change(reference)) or text

    return renamed(target), cast("dict[str, object]", map_strings(config, renamed))


def _copy_of(reference: Reference, copies: Mapping[str, Path]) -> str | None:
    if reference.is_file and reference.path().exists():
        return next((name for name, path in copies.items() if path == reference.path()), None)
    wanted = Path(
        reference.place if reference.is_file else f"{reference.place.replace('.', '/')}.py"
    )
    for name, path in copies.items():
        if path.parts[-len(wanted.parts) :] == wanted.parts:
            return name
    return next((name for name in copies if name.endswith(f"/{wanted.name}")), None)
