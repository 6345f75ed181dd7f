"""References, `module:function` or `path/to/file.py:function`: parse and load them.

Passes, targets, programs and Inductor's options are all loaded here; `python_files.py` runs files.
Loading runs the user's code: callers ask for trust before if the reference is not the user's own. A
module may lie in the working folder, which is searched last.
"""

import ast
import contextlib
import functools
import importlib
import re
import shlex
import sys
import traceback
from collections.abc import Generator, Iterator
from dataclasses import dataclass
from importlib.machinery import PathFinder
from pathlib import Path
from types import ModuleType
from typing import Any

from ctk.compiler.errors import ConfigError, CtkError, ProgramError, message_of, nearest
from ctk.compiler.usercode import python_files
from ctk.compiler.usercode.closure import parse_file, reachable
from ctk.compiler.usercode.python_files import (
    is_installed,
    is_neighbour,
    load_file,
    working_folder,
)


@dataclass(frozen=True, slots=True)
class Reference:
    """`place:attribute`: a module or a Python file, and a dotted name in it."""

    place: str
    attribute: str

    @classmethod
    def parse(cls, text: str) -> "Reference | None":
        """Return the reference in a text; None if it is another text (`cuda:0`, a plain name)."""
        place, _, attribute = text.rpartition(":")
        parts = attribute.split(".") if place.endswith(".py") else text.replace(":", ".").split(".")
        is_one = all(part.isidentifier() for part in parts) and ":" not in place
        return cls(place, attribute) if place and is_one else None

    @property
    def is_file(self) -> bool:
        """Whether the place is a file."""
        return self.place.endswith(".py")

    def path(self, folder: Path | None = None) -> Path:
        """Return the absolute path of the file; a relative one starts from `folder`."""
        return ((folder or working_folder()) / Path(self.place).expanduser()).resolve()


def load(
    reference: str,
    *,
    kind: str = "custom pass",
    error: type[CtkError] = ConfigError,
) -> Any:
    """Return the object that a reference names.

    Args:
        reference: `module:function` or `path/to/file.py:function`; the name may be dotted.

    Raises:
        CtkError: `error`, if there is no such file, module or name, or its code raises. The message
            has the line of the user's file, the nearest name, and the remedy.
    """
    parsed = Reference.parse(reference)
    subject = f"{kind} {reference!r}"
    if parsed is None:
        raise error(
            f"{subject} is not MODULE:CALLABLE\n"
            "next: write it as my_module:name or path/to/file.py:name"
        )
    found: Any = _module_of(parsed, subject, error)
    for part in parsed.attribute.split("."):
        if not hasattr(found, part):
            names = [name for name in dir(found) if not name.startswith("_")]
            raise error(
                f"{subject}: {parsed.place} has no {parsed.attribute!r}{nearest(part, names)}"
            )
        found = getattr(found, part)
    return found


@contextlib.contextmanager
def search_last(folder: Path) -> Generator[None]:
    """Search a folder last for imports inside the `with` block.

    For names from the user. Last, so that no file in the folder replaces an installed module; and
    only inside the block, so that later imports of other code find no file there.
    """
    entry = str(folder)
    sys.path.append(entry)
    try:
        yield
    finally:
        places = [number for number, known in enumerate(sys.path) if known == entry]
        for number in places[-1:]:  # the program may have removed it itself
            del sys.path[number]


def _module_of(reference: Reference, subject: str, error: type[CtkError]) -> ModuleType:
    path = reference.path() if reference.is_file else None
    if path and not path.is_file():
        raise error(
            f"{subject}: no such file: {reference.place} (looked at {path}){near_file(path)}"
        )
    try:
        if path:
            return load_file(path)
        with search_last(working_folder()):
            return importlib.import_module(reference.place)
    except (Exception, SystemExit) as raised:
        raise error(
            f"{subject} cannot be {'loaded' if path else 'imported'}: "
            f"{user_traceback(raised, path)}\nnext: {_advice(reference, raised)}"
        ) from raised


def _advice(reference: Reference, raised: BaseException) -> str:
    place, stem = reference.place, reference.place.rpartition(".")[2]
    if reference.is_file:
        return f"see the whole traceback: python {shlex.quote(place)}"
    if isinstance(raised, ModuleNotFoundError) and raised.name == place.partition(".")[0]:
        return (
            f"add the folder of {place} to PYTHONPATH, install its package, or name the file: "
            f"path/to/{stem}.py:{reference.attribute}"
        )
    return f'see the whole traceback: python -c "import {place}"'


def find_script(path: str | Path, *, is_module: bool = False) -> None:
    """Check that there is a script, or the package of a module.

    Raises:
        ProgramError: There is none.
    """
    if not is_module:
        script = Path(path).expanduser()
        if not script.is_file():
            raise ProgramError(f"no such file: {path}{near_file(script.absolute())}")
        return
    package = str(path).partition(".")[0]
    places = [str(working_folder()), *sys.path]
    is_known = package in sys.builtin_module_names or PathFinder.find_spec(package, places)
    if not is_known:
        raise ProgramError(f"no module named {package!r}, in this folder or installed")


def near_file(path: Path) -> str:
    """Return a hint for a file that does not exist: the nearest name in its folder, if any."""
    if not path.parent.is_dir():
        return f" (no folder {path.parent.name} either)"
    return nearest(path.name, [file.name for file in path.parent.glob(f"*{path.suffix}")])


def user_traceback(error: BaseException, path: Path | None = None) -> str:
    """Return an exception in one line, and below it the user's line that raised.

    Args:
        path: The user's file; the line is the last one in its folder. None: the last one outside
            installed packages.
    """
    text = re.sub(r"\bctk_folder_[0-9a-f]+\.", "", f"{type(error).__name__}: {message_of(error)}")
    text = text.rstrip(": ")
    if isinstance(error, SyntaxError) and error.filename and error.text:
        return f"{text}\n  {Path(error.filename).name}, line {error.lineno}: {error.text.strip()}"
    ours = (__file__, python_files.__file__)
    frames = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if frame.filename not in ours and "importlib" not in frame.filename
    ]
    folder = path.resolve().parent if path else Path("/")
    users = [frame for frame in frames if _is_users(Path(frame.filename), folder)]
    last = (users or (frames if path is None else []))[-1:]
    lines = [f"{Path(f.filename).name}, line {f.lineno}: {f.line}" for f in last]
    return "\n  ".join([text, *lines])


def _is_users(file: Path, folder: Path) -> bool:
    return file.is_relative_to(folder) and not is_installed(file)


def files_of(path: Path, folder: Path | None = None) -> tuple[Path, ...]:
    """Return a file and the neighbours that it imports, directly or through others; runs nothing.

    The import statements are read, those inside functions included. The file comes first.

    Args:
        folder: Files in it or below are neighbours; None: the folder of the file.
    """
    path = path.resolve()
    folder = (folder or path.parent).resolve()
    packages = [each / "__init__.py" for each in path.parents if each.is_relative_to(folder)][:-1]
    starts = [path, *(each for each in packages if each.is_file())]
    looked_up: set[tuple[str, int, Path | None]] = set()

    def imports_of(file: Path) -> Iterator[Path]:
        try:
            status = file.stat()
        except OSError:  # loading or copying the file reports that it cannot be read
            return
        for name, level in _imported_names(file, status.st_mtime_ns, status.st_size):
            asked = (name, level, file.parent if level else None)
            if asked not in looked_up:
                looked_up.add(asked)
                yield from files_of_import(name, file, folder, level=level)

    return reachable(starts, imports_of)


@functools.lru_cache(maxsize=1 << 14)
def _imported_names(file: Path, mtime_ns: int, nbytes: int) -> tuple[tuple[str, int], ...]:
    """Return the names that a file imports, and their levels; see `files_of_import`.

    Each case of a program reads the same files; time and size tell another content.
    """
    found: dict[tuple[str, int], None] = {}
    tree = parse_file(file)
    for node in ast.walk(tree) if tree else ():
        if isinstance(node, ast.Import):
            found |= {(alias.name, 0): None for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            names = (f"{node.module or ''}.{alias.name}".strip(".") for alias in node.names)
            found |= {(name, node.level): None for name in names}
    return tuple(found)


def files_of_import(name: str, file: Path, folder: Path, *, level: int = 0) -> Iterator[Path]:
    """Yield the neighbours that an import of a dotted name runs, packages before their modules.

    Args:
        name: After `import`, or `module.name` of a `from module import name`.
        level: Number of dots before the name.
    """
    start = file.parents[level - 1] if level else folder
    is_below = start.is_relative_to(folder)
    if is_below and (start != folder or is_neighbour(name.partition(".")[0], folder)):
        yield from _files_named(name, start)


def _files_named(name: str, folder: Path) -> Iterator[Path]:
    """Yield the files below a folder that an import of a dotted name runs."""
    for part in name.split("."):
        candidates = (folder / part / "__init__.py", folder / f"{part}.py")
        yield from (path for path in candidates if path.is_file())
        folder = folder / part
