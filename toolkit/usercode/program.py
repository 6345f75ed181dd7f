"""Programs: `FILE.py` with functions `model()` and `inputs()`, loaded as a value.

Loading runs the user's file as a module of its own name (its `if __name__ == "__main__"` block does
not run) and calls the two functions. It does not run the model and knows nothing of compilers.
"""

import contextlib
import inspect
import json
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import cast

import torch

from ctk.compiler.errors import ProgramError, nearest
from ctk.compiler.python_files import load_file
from ctk.compiler.references import near_file, searched_last, user_traceback

SEED = 0
"""Seed of a program that sets none itself, so that it gives the same inputs every time."""

USAGE = "a program is FILE.py or FILE.py:build,example"


@dataclass(frozen=True, slots=True)
class Program:
    """A user's model with the inputs of one call.

    Attributes:
        model: What is compiled: an `nn.Module` or any callable.
        inputs: Positional arguments of one call.
        config: What the file's `config()` returned: options of the target, JSON values.
        name: Stem of the file; used in folder names.
        path: The file, absolute.
        kwargs: Keyword arguments of one call.
    """

    model: Callable[..., object]
    inputs: tuple[object, ...] = field(repr=False)
    config: Mapping[str, object]
    name: str
    path: Path
    kwargs: Mapping[str, object] = field(repr=False, default_factory=dict[str, object])


def load_program(spec: str) -> Program:
    """Load `FILE.py` (functions `model`, `inputs`, optional `config`) or `FILE.py:build,example`.

    `inputs()` returns the positional arguments as a tuple, one tensor, or a dict of keywords. torch
    is seeded meanwhile.

    Raises:
        ProgramError: No such file, no such function, the file or a function raises, or a function
            returns something else than what it should. The message names the line in their file.
    """
    path, build, example = parse_spec(spec)
    with searched_last(path.parent), seeded():
        module = _load_module(path)
        functions = {name: _function(module, name, path) for name in (build, example)}
        model = _call(functions[build], build, path)
        arguments = _call(functions[example], example, path)
        config = _config(module, path)
    args, kwargs = _arguments(arguments, example, path)
    if not callable(model):
        raise ProgramError(
            f"{build}() in {path.name} returned {_describe(model)}; "
            "it must return an nn.Module or a callable"
        )
    return Program(model, args, config, path.stem, path, kwargs)


def parse_spec(spec: str) -> tuple[Path, str, str]:
    """Return file and names of the two functions of a program spec.

    Raises:
        ProgramError: The spec is malformed, or there is no such file.
    """
    file, _, names = (spec, "", "") if spec.endswith(".py") else spec.rpartition(":")
    build, _, example = names.partition(",")
    if not file.endswith(".py"):
        raise ProgramError(f"{spec!r} is no program; {USAGE}")
    if names and not build.strip():
        raise ProgramError(f"{spec!r} names no function that builds the model; {USAGE}")
    path = Path(file).expanduser().resolve()
    if not path.is_file():
        raise ProgramError(f"no such file: {file}{near_file(path)}")
    return path, build.strip() or "model", example.strip() or "inputs"


@contextlib.contextmanager
def seeded() -> Generator[None]:
    """Seed torch inside the `with` block and put the CPU generator back afterwards."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(SEED)
        yield


def _load_module(path: Path) -> ModuleType:
    try:
        return load_file(path, fresh=True)
    except (Exception, SystemExit) as error:
        raise ProgramError(
            f"{path.name} fails when it is loaded: {user_traceback(error, path)}"
        ) from error


def _function(module: ModuleType, name: str, path: Path) -> Callable[..., object]:
    found = getattr(module, name, None)
    if callable(found):
        return found
    own = [
        key
        for key, value in vars(module).items()
        if inspect.isfunction(value) and value.__module__ == module.__name__
    ]
    listed = f"it has {', '.join(f'{key}()' for key in own)}" if own else "it has no functions"
    raise ProgramError(
        f"{path.name} has no function {name}(){nearest(name, own)}; {listed}. "
        f"Name yours: {path.name}:BUILD,EXAMPLE"
    )


def _call(function: Callable[..., object], name: str, path: Path) -> object:
    try:
        return function()
    except (Exception, SystemExit) as error:
        raise ProgramError(
            f"{name}() in {path.name} raised {user_traceback(error, path)}"
        ) from error


def _arguments(
    value: object, name: str, path: Path
) -> tuple[tuple[object, ...], dict[str, object]]:
    if isinstance(value, torch.Tensor):
        return (value,), {}
    if isinstance(value, tuple):
        return cast("tuple[object, ...]", value), {}
    if isinstance(value, dict) and all(
        isinstance(key, str) for key in cast("dict[object, object]", value)
    ):
        return (), cast("dict[str, object]", value)
    raise ProgramError(
        f"{name}() in {path.name} returned {_describe(value)}; it must return a tuple of "
        "positional arguments, one tensor, or a dict of keyword arguments"
    )


def _config(module: ModuleType, path: Path) -> dict[str, object]:
    function = getattr(module, "config", None)
    if not inspect.isfunction(function) or function.__module__ != module.__name__:
        return {}
    value = _call(function, "config", path)
    try:
        json.dumps(value)
    except (TypeError, ValueError) as error:
        raise ProgramError(
            f"config() in {path.name} must return a dict of JSON values ({error}); "
            "name a pass of yours as 'module:function'"
        ) from error
    if not isinstance(value, dict):
        raise ProgramError(f"config() in {path.name} returned {_describe(value)}; expected a dict")
    return cast("dict[str, object]", value)


def _describe(value: object) -> str:
    name = type(value).__name__
    return "None" if value is None else f"{'an' if name[0] in 'aeiou' else 'a'} {name}"
