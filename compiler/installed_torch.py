"""The installed torch: a warning if no test ran on it or its Python, refusals of missing names.

A feature is refused by the private name that it needs and that the installed torch lacks.
`compiler/torch_compat` looks a name up where a feature needs it, and an ordinary exception shows
that it is not there. `refusal_of` recognises such an exception; the cases:

    AttributeError    torch has a module, class or group of settings, without this attribute
    ImportError       torch has no such module, or no such name in it
    TypeError         torch has a function, with another signature

A line of `compiler/torch_compat` itself must have raised the exception: deeper, inside of torch, it
is a failure of torch. A function by which torch looks a name up raises for its caller.
"""

import contextlib
import importlib
import logging
import platform
import re
import sys
import traceback
from collections.abc import Generator, Iterator
from functools import cache
from importlib import metadata
from pathlib import Path
from types import CodeType, FrameType, ModuleType

from ctk.compiler.errors import MissingTorchName
from ctk.compiler.torch_compat.versions import (
    NEWEST_TESTED,
    NEWEST_TESTED_PYTHON,
    OLDEST_SUPPORTED,
    has_gil,
    is_tested,
    is_tested_python,
)

log = logging.getLogger("ctk.torch")

_ROOT = Path(__file__).parents[1]
_COMPAT = str(_ROOT / "compiler" / "torch_compat")
_PATCHES = str(_ROOT / "compiler" / "torch_compat" / "inductor" / "patch_sites.py")
_IMPORT_SYSTEM = ("<frozen importlib", importlib.__file__)
_SETTINGS_FILE = "_config_module.py"
_SETTING = re.compile(r"(torch\.\S+) does not exist$")
_PRIVATE = re.compile(r"\._|\bexperimental\b")
_SIGNATURE = re.compile(r"(?s)([\w.<>]+)\(\) ((?:got|takes|missing) .*)")


def torch_version() -> str:
    """Return the version of the installed torch, without importing it."""
    torch = sys.modules.get("torch")
    return str(getattr(torch, "__version__", None) or metadata.version("torch"))


@cache
def warn_if_untested() -> None:
    """Log one warning in this process for a torch, and one for a Python, that no test ran on."""
    newer = "ctk: %s %s is newer than %s, the newest tested one"
    version, python = torch_version(), platform.python_version()
    if not is_tested(version):
        log.warning(newer, "torch", version, NEWEST_TESTED)
    if not is_tested_python(python):
        log.warning(newer, "Python", python, NEWEST_TESTED_PYTHON)
    if not has_gil():
        log.warning("ctk: Python %s without its global interpreter lock is untested", python)


@contextlib.contextmanager
def missing_names_refused() -> Generator[None]:
    """Raise the refusal in place of an exception that shows a missing name of torch.

    Raises:
        MissingTorchName: The installed torch lacks a private name.
    """
    try:
        yield
    except Exception as error:
        refuse_missing_name(error)
        raise


def refuse_missing_name(error: BaseException) -> None:
    """Raise the refusal for an exception that shows a missing name of torch.

    Raises:
        MissingTorchName: The installed torch lacks a private name.
    """
    refusal = refusal_of(error)
    if refusal is not None:
        raise refusal from refusal.__cause__ or error


def refusal_of(error: BaseException) -> MissingTorchName | None:
    """Return the refusal for an exception, or for its cause; None if torch lacks no name."""
    for each in _chain(error):
        if isinstance(each, MissingTorchName):
            return each
        frames = [frame for frame, _ in traceback.walk_tb(each.__traceback__)]
        lack = _lack(each) if _is_raised_by_compat(frames) else None
        if lack is not None:
            return MissingTorchName(_message(lack, frames))
    return None


def _chain(error: BaseException) -> Iterator[BaseException]:
    """Yield an exception, its cause or context, and the exception that Dynamo has wrapped."""
    waiting: list[BaseException | None] = [error]
    seen: set[int] = set()
    while waiting:
        each = waiting.pop(0)
        if each is None or id(each) in seen:
            continue
        seen.add(id(each))
        yield each
        context = None if each.__suppress_context__ else each.__context__
        waiting += [getattr(each, "inner_exception", None), each.__cause__ or context]


def _is_raised_by_compat(frames: list[FrameType]) -> bool:
    """Return whether a line of `compiler/torch_compat` raised: not torch, which it called."""
    codes = (frame.f_code for frame in reversed(frames))
    raising = next((code.co_filename for code in codes if not _looks_up(code)), "")
    return raising.startswith(_COMPAT)


def _looks_up(code: CodeType) -> bool:
    """Return whether a function imports a module, or reads an attribute or a setting."""
    is_import = code.co_filename.startswith(_IMPORT_SYSTEM)
    return is_import or code.co_name == "__getattr__" or code.co_filename.endswith(_SETTINGS_FILE)


def _lack(error: BaseException) -> str | None:
    """Return the lack that an exception shows: `no torch._guards.tracing`; None if it is not one.

    A public name counts only in a version that no test ran on: else the mistake is that of ctk.
    """
    match error:
        case AttributeError():
            missed = _SETTING.match(str(error))
            owner = _name_of(error.obj)
            name = missed[1] if missed else owner and f"{owner}.{error.name}"
        case ImportError(name=str(module)) if _is_torchs(module):
            missed = re.match(r"cannot import name '(\w+)'", str(error))
            name = f"{module}.{missed[1]}" if missed else module
        case TypeError():
            found = _SIGNATURE.match(str(error))
            is_torchs = found is not None and _defines(found[1].partition(".")[0])
            return f"another signature of {found[1]} ({found[2]})" if found and is_torchs else None
        case _:
            return None
    counts = name and (_PRIVATE.search(name) or not is_tested(torch_version()))
    return f"no {name}" if counts else None


def _name_of(owner: object) -> str | None:
    """Return the dotted name of a module or class of torch, or of the class of its object."""
    if isinstance(owner, ModuleType):
        return owner.__name__ if _is_torchs(owner.__name__) else None
    classes = owner.__mro__ if isinstance(owner, type) else type(owner).__mro__
    found = next((each for each in classes if _is_torchs(each.__module__)), None)
    return None if found is None else f"{found.__module__}.{found.__qualname__}"


def _defines(name: str) -> bool:
    """Return whether a module of torch defines a function or class, named as in a TypeError.

    Code of the user that `compiler/torch_compat` calls raises a TypeError in the same place.
    """
    modules = (module for at, module in list(sys.modules.items()) if _is_torchs(at))
    return any(callable(getattr(each, "__dict__", {}).get(name)) for each in modules)


def _is_torchs(name: object) -> bool:
    return isinstance(name, str) and name.partition(".")[0] in ("torch", "functorch")


def _message(lack: str, frames: list[FrameType]) -> str:
    version = torch_version()
    step = (
        "run ctk doctor, which finds changed files of torch"
        if is_tested(version)
        else f"install torch {NEWEST_TESTED} or older, or a newer ctk"
    )
    return (
        f"torch {version} has {lack}, which ctk needs for {_feature(frames)}; "
        f"ctk is tested with torch {OLDEST_SUPPORTED} to {NEWEST_TESTED}; next: {step}"
    )


def _feature(frames: list[FrameType]) -> str:
    """Return the innermost module of ctk that needs the name, with the first line about it."""
    own = [frame for frame in frames if frame.f_code.co_filename.startswith(str(_ROOT))]
    users = [frame for frame in own if frame.f_code.co_filename != _PATCHES] or own
    frame, file = users[-1], users[-1].f_code.co_filename
    place = Path(file).relative_to(_ROOT).with_suffix("").as_posix()
    purpose = (frame.f_globals.get("__doc__") or "").partition("\n")[0].rstrip(".")
    return f"{place.removeprefix('compiler/torch_compat/')} ({purpose})"
