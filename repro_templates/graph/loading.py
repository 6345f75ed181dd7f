"""Load the compiler under test, and functions that options name, in a repro's own process."""

import importlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar, cast

import torch

from ctk.compiler.observe import first_line
from ctk.compiler.usercode.python_files import load_file

T = TypeVar("T")


class CannotTell(Exception):
    """The question has no answer here."""


class Excused(Exception):
    """The results differ, and the compiler is not the cause; its text has the reason."""


def require(what: str, build: Callable[..., T], *arguments: object) -> T:
    """Call a function that builds a part of the script: the program, its inputs, a file.

    Raises:
        CannotTell: It raises. No compiler has run yet, so the reason is this machine.
    """
    try:
        return build(*arguments)
    except (CannotTell, KeyboardInterrupt):
        raise
    except BaseException as error:  # also sys.exit
        reason = f"{type(error).__name__}: {first_line(error)}"
        raise CannotTell(f"{what} cannot be loaded: {reason}") from error


def registered_backend(target: str, folder: Path) -> str:
    """Return the name of the compiler under test in Dynamo."""
    if target not in torch.compiler.list_backends(exclude_tags=()):
        raise CannotTell(f"Dynamo knows no backend {target}; install the package that has it")
    return target


def loaded_function(reference: str, folder: Path) -> Any:
    """Return the function of `module:function` or `sources/file.py:function` (in `folder`)."""
    place, _, name = reference.rpartition(":")

    def load() -> Any:
        is_file = place.endswith(".py")
        found: Any = load_file(folder / place) if is_file else importlib.import_module(place)
        for part in name.split("."):
            found = getattr(found, part)
        return found

    return require(reference, load)


def replaced(value: object, found: Mapping[str, object]) -> Any:
    """Return options with each reference replaced by its loaded object."""
    if isinstance(value, dict):
        items = cast("Mapping[str, object]", value).items()
        return {key: replaced(item, found) for key, item in items}
    if isinstance(value, list):
        return [replaced(item, found) for item in cast("Sequence[object]", value)]
    return found.get(value, value) if isinstance(value, str) else value
