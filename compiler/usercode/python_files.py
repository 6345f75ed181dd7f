"""Run a Python file as a module that can import its neighbours: passes, targets, programs, repros.

The module gets a unique name. Its import statements work as usual, and they also find files in the
folder of the file, at any time, inside functions as well:

    a/fold.py: import helper    # a/helper.py, although no folder was put on sys.path
    b/fold.py: import helper    # b/helper.py, another module

1. An installed module wins over a neighbour of its name: a user's `queue.py` breaks no import.
2. A neighbour that Python finds by itself (its folder is on `sys.path`) is imported as usual, so
   that the running script and its passes share it.
3. Otherwise the folder is a package of its own, so that two folders may each have a `helper.py`.

`importlib.import_module("helper")` finds no neighbour, and the file sees the builtins as they were
when it was loaded. Emitted repros carry the text of this module, so it needs the standard library
only.
"""

import builtins
import os
import re
import sys
import sysconfig
from collections.abc import Mapping, Sequence
from functools import cache, partial
from hashlib import sha256
from importlib import import_module
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from importlib.util import find_spec, module_from_spec, spec_from_file_location
from itertools import count
from pathlib import Path
from types import ModuleType

_FOLDER = "ctk_folder_"


def load_file(path: Path, *, fresh: bool = False) -> ModuleType:
    """Run a Python file and return its module; a second time returns the same module.

    Args:
        path: An existing file.
        fresh: Run it again, as another module (it may have been edited).

    Raises:
        BaseException: Any exception of the file (`SystemExit` included).
    """
    path = path.resolve()
    name = _name_of(path)
    if name in sys.modules and not fresh:
        return sys.modules[name]
    if name in sys.modules:
        name = next(free for n in count(1) if (free := f"{name}__{n}") not in sys.modules)
    spec = spec_from_file_location(name, path, loader=_FileLoader(name, str(path)))
    if spec is None or spec.loader is None:
        raise ImportError(f"{path} is not a Python file")
    module = sys.modules[name] = module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module


def load_module(name: str, folder: Path) -> ModuleType:
    """Import a module of a folder by its dotted name (`pack.helper`), as its files import it."""
    return import_module(f"{_folder_package(folder.resolve())}.{name}")


def plain_name(module: str) -> str:
    """Return the dotted name of a module in its folder: `pack.helper` for one of `load_module`."""
    name = module.partition(".")[2] if is_of_folder(module) else module
    return re.sub(r"__\d+$", "", name)


def find_loaded(name: str) -> ModuleType | None:
    """Return the loaded module of a plain name; of several, the last one."""
    if name in sys.modules:
        return sys.modules[name]
    modules = [(key, module) for key, module in sys.modules.items() if is_of_folder(key)]
    return next((module for key, module in reversed(modules) if plain_name(key) == name), None)


def import_root(path: Path) -> Path:
    """Return the folder from which a loaded file was imported: above its packages."""
    path = path.resolve()
    modules = loaded_modules(installed=is_installed(path))
    keys = (key for key, file in modules if key != "__main__" and _real_path(file) == str(path))
    key = next(keys, None)
    if key is None:
        return path.parent
    return path.parents[plain_name(key).count(".") + (path.name == "__init__.py")]


def loaded_modules(*, installed: bool) -> list[tuple[str, str]]:
    """Return names and files of the loaded modules that are installed, or of the others."""
    files = ((key, getattr(module, "__file__", None)) for key, module in sys.modules.copy().items())
    return [(key, file) for key, file in files if file and is_installed(file) is installed]


def is_loaded(path: Path) -> bool:
    """Return whether `load_file` has run a file before."""
    return _name_of(path.resolve()) in sys.modules


def _name_of(path: Path) -> str:
    return f"{_folder_package(path.parent)}.{module_name(path)}"


def is_of_folder(module: str) -> bool:
    """Return whether `load_file` made a module: no import statement or other process finds it."""
    return module.startswith(_FOLDER)


def _folder_package(folder: Path) -> str:
    """Return the name of the package of a folder; make it if it is new."""
    name = f"{_FOLDER}{sha256(str(folder).encode()).hexdigest()[:12]}"
    if name not in sys.modules:
        package = sys.modules[name] = ModuleType(name, f"The files of {folder}.")
        package.__path__ = [str(folder)]
    if not any(getattr(finder, "is_ctk_finder", False) for finder in sys.meta_path):
        sys.meta_path.insert(0, _FolderFinder())  # before Python finds them by path
    return name


def module_name(path: Path) -> str:
    """Return a name for a file; the name in a neighbour's import if possible."""
    if path.stem.isidentifier() and not path.with_suffix("").is_dir():
        return path.stem
    return f"file_{sha256(path.name.encode()).hexdigest()[:8]}"


class _FileLoader(SourceFileLoader):
    """Runs a file whose import statements see its neighbours."""

    def exec_module(self, module: ModuleType) -> None:
        folder = sys.modules[module.__name__.partition(".")[0]]
        beside = partial(_import_beside, folder)
        vars(module)["__builtins__"] = vars(builtins) | {"__import__": beside}
        super().exec_module(module)


class _FolderFinder:
    """Finds modules of the packages of folders, and no others."""

    is_ctk_finder = True

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        spec = PathFinder.find_spec(name, path) if is_of_folder(name) else None
        if spec is not None and isinstance(spec.loader, SourceFileLoader):
            spec.loader = _FileLoader(spec.loader.name, spec.loader.path)
        return spec


def _import_beside(
    package: ModuleType,
    name: str,
    globals: Mapping[str, object] | None = None,
    locals: Mapping[str, object] | None = None,
    fromlist: Sequence[str] | None = (),
    level: int = 0,
) -> ModuleType:
    """Import as `__import__` does, for a file in the folder of a package."""
    first, folder = name.partition(".")[0], Path(package.__path__[0])
    if level or not is_neighbour(first, folder) or _is_public(first, folder):
        return builtins.__import__(name, globals, locals, fromlist or (), level)
    module = builtins.__import__(f"{package.__name__}.{name}", globals, locals, fromlist or (), 0)
    return module if fromlist else sys.modules[f"{package.__name__}.{first}"]


def is_neighbour(name: str, folder: Path) -> bool:
    """Return whether `import name` in a file of `folder` means a file or folder beside it."""
    if name == "__main__" or not any(path.exists() for path in _places(name, folder)):
        return False
    files = _find_files(name)
    return files is None or (files != [] and not any(map(is_installed, files)))


def is_importable(module: str) -> bool:
    """Return whether Python itself finds a module; of `a.b`, because a lookup runs code, `a`."""
    try:
        return _find_files(module.partition(".")[0]) is not None
    except ImportError:
        return False


def working_folder() -> Path:
    """Return the working folder; if it was removed, a path below which there is nothing."""
    try:
        return Path.cwd()
    except FileNotFoundError:
        return Path(os.devnull)


def is_installed(path: str | Path) -> bool:
    """Return whether a file belongs to the standard library or to an installed package."""
    return _real_path(path).startswith(_installed_folders())


def _real_path(path: str | Path) -> str:
    text = os.fspath(path)
    if not text.startswith(os.sep):
        text = str(working_folder() / text)  # the working folder may change
    return _resolve(text)


@cache
def _resolve(path: str) -> str:
    return os.path.realpath(path)


@cache
def _installed_folders() -> tuple[str, ...]:
    roots = {sysconfig.get_path(key) for key in ("stdlib", "platstdlib", "purelib", "platlib")}
    return tuple(f"{os.path.realpath(root)}{os.sep}" for root in roots)


def _is_public(name: str, folder: Path) -> bool:
    """Return whether Python itself finds the neighbour of that name."""
    return any(
        p.is_relative_to(place) for p in _find_files(name) or () for place in _places(name, folder)
    )


def _places(name: str, folder: Path) -> tuple[Path, Path]:
    return folder / f"{name}.py", folder / name


def _find_files(name: str) -> list[Path] | None:
    """Return where Python finds a module by itself: None for nowhere, empty if it is not a file."""
    try:
        spec = find_spec(name)
    except ValueError:  # a module made by hand
        return []
    if spec is None:
        return None
    places = [spec.origin] if spec.has_location else spec.submodule_search_locations or ()
    return [Path(place).resolve() for place in places if place]
