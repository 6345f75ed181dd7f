"""Set the options of a pass: the fields of its dataclass, checked by their types.

Values come from `Config.passes`, a command line or JSON, so that a list is accepted for a tuple,
`"a,b"` for a list of words, and an int for a float. Types that a field may have: bool, int, float,
str, None, `Literal`, tuples of these, and unions of these.
"""

import dataclasses
from collections.abc import Mapping
from types import NoneType, UnionType
from typing import Any, Literal, TypeVar, Union, cast, get_args, get_origin, get_type_hints

from ctk.compiler.errors import ConfigError, nearest, not_taken
from ctk.compiler.options.choices import Options
from ctk.compiler.options.inductor_options import nearest_option
from ctk.compiler.rewriting.base import Pass

T = TypeVar("T")


def set_options(step: T, name: str, options: Mapping[str, object]) -> T:
    """Return a pass with some of its options changed.

    Args:
        name: The user's name of the pass, for messages: `pad_mm` or `joint/pad_mm`.

    Raises:
        ConfigError: The pass has no such option, a value has the wrong type, or the pass refused
            it in its `__post_init__`.
    """
    if not options:
        return step
    types = option_types(step)
    values: dict[str, object] = {}
    for option, value in options.items():
        if option not in types:
            raise _unknown(step, name, option)
        try:
            values[option] = _convert(types[option], value)
        except ValueError:
            raise not_taken(f"{name}.{option}", value, _spell(types[option])) from None
    try:
        return cast("T", dataclasses.replace(cast(Any, step), **values))
    except Exception as error:
        values_seen = ", ".join(f"{name}.{option}={value!r}" for option, value in options.items())
        raise ConfigError(
            f"{values_seen} is refused: {error}\n  its options are {_list_options(step)}"
        ) from error


def option_types(step: object) -> dict[str, object]:
    """Return the types of a pass's options by their names; empty for a function."""
    if not isinstance(step, (Pass, Options)):
        return {}
    fields = dataclasses.fields(step)
    try:
        hints = get_type_hints(type(step))
    except Exception:  # a type that only a type checker imports: no value can be checked by it
        hints = {}
    return {field.name: hints.get(field.name, field.type) for field in fields}


def _unknown(step: object, name: str, option: str) -> ConfigError:
    types = option_types(step)
    if types:
        hint = nearest(option, types) or nearest_option(f"{name}.{option}", ())
        return ConfigError(
            f"{_kind(step)}{name} has no option {option!r}{hint}; "
            f"its options are {_list_options(step)}"
        )
    hint = (
        "the options of a pass are the fields of a class of its own: "
        "@dataclass(frozen=True), class MyPass(Pass), my_option: int = 3"
    )
    return ConfigError(f"pass {name} has no options, so none called {option!r}\n  {hint}")


def _kind(step: object) -> str:
    return "" if isinstance(step, Options) else "pass "


def _list_options(step: object) -> str:
    """Return `max_nbytes: int = 1024, ...`, with the values that the pass has now."""
    return ", ".join(
        f"{option}: {_spell(kind)} = {getattr(step, option)!r}"
        for option, kind in option_types(step).items()
    )


def _spell(kind: object) -> str:
    """Return the text of a type for users: `int`, `'a' or 'b'`, `a list of int`."""
    arguments = get_args(kind)
    if get_origin(kind) is Literal:
        return " or ".join(map(repr, arguments))
    if get_origin(kind) in (Union, UnionType):
        return " or ".join(map(_spell, arguments))
    if get_origin(kind) is tuple:
        items = ", ".join(_spell(argument) for argument in arguments if argument is not Ellipsis)
        return f"a list of {items}"
    if kind in (None, NoneType):
        return "None"
    return {tuple: "a list", bool: "true or false"}.get(
        cast(Any, kind), getattr(kind, "__name__", str(kind))
    )


def _convert(kind: object, value: object) -> object:
    """Return a value as an option of that type, or raise `ValueError`."""
    if get_origin(kind) in (Union, UnionType):
        return _first_of(get_args(kind), value)
    if get_origin(kind) is Literal:
        same = [arg for arg in get_args(kind) if type(arg) is type(value) and arg == value]
        if same:
            return value
    elif kind is tuple or get_origin(kind) is tuple:
        values = _split(get_args(kind), value)
        if isinstance(values, (list, tuple)):
            return _items(get_args(kind), tuple(cast("tuple[object, ...]", values)))
    elif kind in (None, NoneType):
        if value is None:
            return None
    elif kind is float:
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            return float(value)
    elif kind is type(value) and isinstance(value, (bool, int, str)):
        return value
    raise ValueError(value)


def _first_of(kinds: tuple[object, ...], value: object) -> object:
    ints_first = sorted(kinds, key=lambda kind: kind is float)  # 3 stays an int if it may be one
    for kind in ints_first:
        try:
            return _convert(kind, value)
        except ValueError:
            continue
    raise ValueError(value)


def _split(kinds: tuple[object, ...], value: object) -> object:
    """Return the words of `"address,undefined"`, if the option is a list of words."""
    words = all(
        kind in (str, Ellipsis) or all(isinstance(each, str) for each in get_args(kind) or (kind,))
        for kind in kinds
    )
    if isinstance(value, str) and kinds and words:
        return tuple(word.strip() for word in value.split(",") if word.strip())
    return value


def _items(kinds: tuple[object, ...], values: tuple[object, ...]) -> tuple[object, ...]:
    if kinds and kinds[-1] is Ellipsis:
        kinds = kinds[:1] * len(values)
    if kinds and len(kinds) != len(values):
        raise ValueError(values)
    return tuple(map(_convert, kinds, values)) if kinds else values
