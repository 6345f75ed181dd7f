"""Programs: `FILE.py` with functions `model()` and `inputs()`, loaded as a value.

A file may also define: `warmups()`, a list of the inputs of earlier calls of the same compiled
module; `between(module)`, called before the last call; `config()`, options of the
target; `dynamic_shapes()`, the sizes of `inputs()` that vary in a package, as `torch.export` takes
them; and the constants `COMPILE` (keywords of `torch.compile`), `CONFIG` (settings of torch by
their full names) and `BACKWARD`:

    def warmups():            # two calls before the one with inputs()
        return [(torch.randn(2, 4),), (torch.randn(3, 4),)]
    def between(module):      # changes the module before the last call
        module.scale = 2.0
    COMPILE = {"dynamic": True}
    CONFIG = {"torch._inductor.config.freezing": True}

Loading runs the user's file as a module of its own name (its `if __name__ == "__main__"` block does
not run) and calls its functions.
"""

import contextlib
import inspect
import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import cast

import torch

from ctk.compiler.errors import BuildError, ProgramError, nearest
from ctk.compiler.torch_compat.fx.libraries import register_once
from ctk.compiler.torch_compat.process.settings import is_setting, may_be
from ctk.compiler.usercode.python_files import is_loaded, load_file
from ctk.compiler.usercode.references import near_file, search_last, user_traceback
from ctk.repro_templates.graph.running import leaves
from ctk.repro_templates.program.program_arguments import Arguments, arguments_of
from ctk.repro_templates.program.program_play import seed_all, settings_of
from ctk.toolkit.case.usercode.references import reference_to

USAGE = "a program is FILE.py or FILE.py:build,example"


@dataclass(frozen=True, slots=True)
class UserProgram:
    """A user's model with the inputs of one call.

    Attributes:
        model: The compiled object: an `nn.Module` or any callable.
        config: The result of the file's `config()`: options of the target, JSON values.
        path: The file, absolute.
        warmups: Arguments of earlier calls, in order.
        between: Called with the model before the last call; None: no call.
        compile: Keywords of `torch.compile` in the file (`dynamic`, `fullgraph`).
        settings: Settings of torch, by full name (`torch._dynamo.config.cache_size_limit`).
        dynamic_shapes: Builds the `dynamic_shapes` of `torch.export.export`; None: not in the file.
        spec: The argument of `load_program` that loads it again; empty for a callable of the
            library.
    """

    model: Callable[..., object]
    inputs: tuple[object, ...] = field(repr=False)
    config: Mapping[str, object]
    name: str
    path: Path
    kwargs: Mapping[str, object] = field(repr=False, default_factory=dict[str, object])
    warmups: tuple[Arguments, ...] = field(repr=False, default=())
    between: Callable[..., object] | None = field(repr=False, default=None)
    compile: Mapping[str, object] = field(default_factory=dict[str, object])
    settings: Mapping[str, object] = field(default_factory=dict[str, object])
    backward: bool = False
    dynamic_shapes: Callable[[], object] | None = None
    spec: str = ""


def load_program(spec: str) -> UserProgram:
    """Load `FILE.py` (functions `model`, `inputs`, optional `config`) or `FILE.py:build,example`.

    `inputs()` returns the positional arguments as a tuple, one tensor, or a dict of keywords. torch
    is seeded before.

    Raises:
        ProgramError: The file or a function is missing, or a function returns a value of a wrong
            type.
        BuildError: The file or a function raises. The message names the line in the file.
    """
    path, build, example = parse_spec(spec)
    with search_last(path.parent), seed_all():
        module = _load_module(path)
        functions = {name: _function(module, name, path) for name in (build, example)}
        model = _call(functions[build], build, path)
        arguments = _call(functions[example], example, path)
        config = _config(module, path)
        warmups = _warmups(module, path)
    last = _arguments(arguments, example, path)
    if not callable(model):
        raise ProgramError(
            f"{build}() in {path.name} returned {_describe(model)}; "
            "it must return an nn.Module or a callable"
        )
    return UserProgram(
        model,
        last.args,
        config,
        path.stem,
        path,
        last.kwargs,
        warmups=warmups,
        between=_call_function(module, "between", path),
        dynamic_shapes=_call_function(module, "dynamic_shapes", path),
        compile=_compile_keywords(module, path),
        settings=_settings(module, path),
        backward=getattr(module, "BACKWARD", False) is True,
        spec=spec,
    )


def has_own_options(spec: str) -> bool:
    """Return whether a program may have options of its own; the file is read, and not run.

    Raises:
        ProgramError: The spec is malformed, or there is no such file.
    """
    path, _, _ = parse_spec(spec)
    return re.search(rb"\b(config|COMPILE|CONFIG)\b|import \*", path.read_bytes()) is not None


def entries_named(spec: str) -> str:
    """Return source that defines `model` and `inputs` by the functions that a spec names.

    >>> entries_named("net.py:build,inputs")
    'def model():\\n    return build()\\n'
    """
    _, build, example = parse_spec(spec)
    pairs = (("model", build), ("inputs", example))
    return "\n\n".join(f"def {a}():\n    return {b}()\n" for a, b in pairs if a != b)


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


def _load_module(path: Path) -> ModuleType:
    again = register_once() if is_loaded(path) else contextlib.nullcontext()
    try:
        with again:
            return load_file(path, fresh=True)
    except (Exception, SystemExit) as error:
        raise BuildError(
            f"{path.name} fails when it is loaded: {user_traceback(error, path)}"
        ) from error


def _function(module: ModuleType, name: str, path: Path) -> Callable[..., object]:
    found = getattr(module, name, None)
    if callable(found):
        return found
    own = [key for key in vars(module) if _own_function(module, key)]
    listed = f"it has {', '.join(f'{key}()' for key in own)}" if own else "it has no functions"
    raise ProgramError(
        f"{path.name} has no function {name}(){nearest(name, own)}; {listed}. "
        f"Name yours: {path.name}:BUILD,EXAMPLE"
    )


def _call(function: Callable[..., object], name: str, path: Path, *arguments: object) -> object:
    try:
        return function(*arguments)
    except (Exception, SystemExit) as error:
        raise BuildError(f"{name}() in {path.name} raised {user_traceback(error, path)}") from error


def _arguments(value: object, name: str, path: Path) -> Arguments:
    keys = cast("dict[object, object]", value) if isinstance(value, dict) else ()
    if isinstance(value, torch.Tensor | tuple | dict) and all(isinstance(key, str) for key in keys):
        return arguments_of(value)
    raise ProgramError(
        f"{name}() in {path.name} returned {_describe(value)}; it must return a tuple of "
        "positional arguments, one tensor, or a dict of keyword arguments"
    )


def _warmups(module: ModuleType, path: Path) -> tuple[Arguments, ...]:
    value = _own_result(module, "warmups", path, ())
    if not isinstance(value, list | tuple):
        raise ProgramError(
            f"warmups() in {path.name} returned {_describe(value)}; it must return a list with "
            "the inputs of each earlier call"
        )
    calls = cast("Sequence[object]", value)
    return tuple(_arguments(call, "warmups", path) for call in calls)


def _call_function(module: ModuleType, name: str, path: Path) -> Callable[..., object] | None:
    """Return a function of the file, if it has one; its exceptions become errors of the program."""
    function = _own_function(module, name)
    return partial(_call, function, name, path) if function is not None else None


def _own_result(module: ModuleType, name: str, path: Path, default: object) -> object:
    """Return the result of a function of the file; `default` if it has none of this name."""
    function = _own_function(module, name)
    return default if function is None else _call(function, name, path)


def _own_function(module: ModuleType, name: str) -> Callable[..., object] | None:
    """Return a function that the file itself defines; an imported name does not count."""
    function = getattr(module, name, None)
    is_own = inspect.isfunction(function) and function.__module__ == module.__name__
    return function if is_own else None


_KEYWORDS: Mapping[str, tuple[type, ...]] = {
    "dynamic": (bool, type(None)),
    "fullgraph": (bool,),
    "mode": (str, type(None)),
    "options": (dict, type(None)),
}
"""Keywords of `torch.compile` that a file may set, with the types of their values."""


def _compile_keywords(module: ModuleType, path: Path) -> dict[str, object]:
    value: object = getattr(module, "COMPILE", None)
    named = cast("dict[object, object]", value) if isinstance(value, dict) else {}
    table = {key: each for key, each in named.items() if isinstance(key, str)}
    if not set(table) & set(_KEYWORDS):
        return {}
    for name, value in table.items():
        if name not in _KEYWORDS:
            hint = "; name it with --target" if name == "backend" else nearest(name, _KEYWORDS)
            raise ProgramError(f"COMPILE in {path.name}: {name!r} is not a keyword here{hint}")
        if not isinstance(value, _KEYWORDS[name]):
            raise ProgramError(f"COMPILE in {path.name}: {name} cannot be {value!r}")
    return table


def _settings(module: ModuleType, path: Path) -> dict[str, object]:
    settings = settings_of(vars(module))
    for name in settings:
        if not is_setting(name):
            raise ProgramError(f"CONFIG in {path.name}: torch has no setting {name}")
        if not may_be(name, settings[name]):
            raise ProgramError(f"CONFIG in {path.name}: {name} cannot be {settings[name]!r}")
    return settings


def _config(module: ModuleType, path: Path) -> dict[str, object]:
    value = _own_result(module, "config", path, {})
    if not isinstance(value, dict):
        raise ProgramError(f"config() in {path.name} returned {_describe(value)}; expected a dict")
    options = cast("dict[str, object]", value)
    for key, item in options.items():
        try:
            json.dumps(item)
        except (TypeError, ValueError) as error:
            functions = (each for each in leaves(item) if callable(each))
            names = filter(None, (_reference(each, module, path) for each in functions))
            named = next(names, None)
            remedy = f'give the function as "{named}"' if named else f"needs JSON values: {error}"
            raise ProgramError(f"{key} of config() in {path.name}: {remedy}") from error
    return options


def _reference(function: object, module: ModuleType, path: Path) -> str | None:
    """Return the name of a user's function for an option; None for others."""
    name = getattr(function, "__name__", None)
    if isinstance(name, str) and vars(module).get(name) is function:
        return f"{path.name}:{name}"
    is_builtin = getattr(function, "__module__", "builtins") == "builtins"
    return None if is_builtin else reference_to(function)


def _describe(value: object) -> str:
    name = type(value).__name__
    return "None" if value is None else f"{'an' if name[0] in 'aeiou' else 'a'} {name}"
