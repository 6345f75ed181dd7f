"""Inductor's options as a target's config: checked, and completed so that compiles compare."""

import types
import typing
from collections.abc import Callable, Mapping
from collections.abc import Callable as CallableType
from typing import Any

from ctk.compiler.errors import ConfigError, nearest
from ctk.compiler.torch_compat.inductor import inductor_api as inductor
from ctk.compiler.usercode.references import load

COMPARABLE: Mapping[str, object] = {
    "compile_threads": 1,
    "fallback_random": True,
    "fx_graph_cache": False,
    "fx_graph_remote_cache": False,
}
"""Set unless the config has them: random numbers as in eager, and a real compile in this process
each time.
"""


def check_options(config: Mapping[str, object]) -> None:
    """Check option names and types.

    Raises:
        ConfigError: An unknown option, or a value of another type.
    """
    known = inductor.known_options()
    for key, value in config.items():
        name = _name(key)
        if name not in known:
            raise ConfigError(
                f"target inductor has no option {key!r}{nearest(name, known)}\n"
                "next: the options are those of torch.compile(options=...)"
            )
        default, declared = known[name]
        if not accepts(value, declared):
            raise ConfigError(
                f"option {key!r} of target inductor: got {value!r} ({type(value).__name__}), "
                f"expected {_show_type(declared)}; its default is {default!r}"
            )


def config_patches(config: Mapping[str, object]) -> dict[str, object]:
    """Return all options of a compile: `COMPARABLE`, then the user's, `MODULE:CALLABLE` loaded.

    Raises:
        ConfigError: An unknown option, a value of another type, a pass that cannot be imported.
    """
    check_options(config)
    known = inductor.known_options()
    defaults = {key: value for key, value in COMPARABLE.items() if key in known}
    users = {
        _name(key): _load_callable(value, known[_name(key)][1]) for key, value in config.items()
    }
    return {**defaults, **users}


def options_of_process() -> dict[str, object]:
    """Return the options that the program has set for the whole process, its passes included.

    A case holds them, so that another process compiles alike; `COMPARABLE` has its own values.
    """
    known, changed = inductor.known_options(), inductor.changed_options()
    return {
        name: value
        for name, value in changed.items()
        if name in known and name not in COMPARABLE and accepts(value, known[name][1])
    }


def _name(key: str) -> str:
    return key.replace("-", "_")


def accepts(value: object, declared: Any) -> bool:
    """Return whether a value, possibly read from JSON, fits a declared type.

    Cases: a union or `Optional` (any of its parts), a literal, a callable (also as
    `MODULE:CALLABLE`), a sequence (a JSON list will do), a mapping, `float` (an int will do),
    `bool` (nothing else), any other class.
    """
    origin, parts = typing.get_origin(declared), typing.get_args(declared)
    if declared is Any or isinstance(declared, typing.TypeVar):
        return True
    if declared is None or declared is types.NoneType:
        return value is None
    if origin in (typing.Union, types.UnionType):
        return any(accepts(value, part) for part in parts)
    if origin is typing.Literal:
        return value in parts
    if _is_pass(declared):
        return callable(value) or (isinstance(value, str) and ":" in value)
    if (origin or declared) in (list, tuple, set, frozenset):
        return isinstance(value, (list, tuple, set, frozenset)) and _fits(list(value), parts)
    if declared is float:
        return isinstance(value, (int, float)) and not isinstance(value, bool)
    if declared is int:
        return isinstance(value, int) and not isinstance(value, bool)
    kind = origin or declared
    return isinstance(value, kind) if isinstance(kind, type) else True


def _fits(items: list[object], parts: tuple[Any, ...]) -> bool:
    """Return whether items fit the parameters of a sequence type: each its own, or all one."""
    if len(parts) == len(items) and Ellipsis not in parts and len(parts) > 1:
        return all(accepts(item, part) for item, part in zip(items, parts, strict=True))
    return all(accepts(item, part) for item in items for part in parts[:1])


def _is_pass(declared: Any) -> bool:
    """Return whether a type is a function or one of Inductor's classes of custom passes."""
    origin = typing.get_origin(declared) or declared
    return origin in (Callable, CallableType, typing.Callable) or "Custom" in getattr(
        origin, "__name__", ""
    )


def _load_callable(value: object, declared: Any) -> object:
    """Replace `MODULE:CALLABLE` by the function where the option takes one."""
    if isinstance(value, str) and ":" in value and _takes_passes(declared):
        return load(value)
    if isinstance(value, (list, tuple)) and _takes_passes(declared):
        return [_load_callable(item, declared) for item in value]
    return value


def _takes_passes(declared: Any) -> bool:
    return _is_pass(declared) or any(_takes_passes(part) for part in typing.get_args(declared))


def _show_type(declared: Any) -> str:
    return declared.__name__ if isinstance(declared, type) else str(declared).replace("typing.", "")
