"""JSON text and back, strictly: no NaN, no key twice; a wrong type is an error with its place.

Documents of a fixed shape are declared as classes (`schema`). What stays here is for values whose
type their own keys name (a graph's arguments): a reader asks for the type that it needs at the
place where it needs it, and never sees a `KeyError`, `TypeError` or `JSONDecodeError`.
"""

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar, cast

from ctk.compiler.errors import CaseError, nearest

T = TypeVar("T")

Json = dict[str, Any]

_NUMBERS = re.compile(r"\[\n[\d\s.,eE+-]*\]")
"""A list of numbers, which is put on one line. (No string of JSON holds a line break.)"""


def dump_json(data: object) -> str:
    """Return JSON text with a fixed layout. Floats must be finite (see `json_values`)."""
    text = json.dumps(data, indent=1, allow_nan=False)
    return _NUMBERS.sub(_one_line, text) + "\n"


def _one_line(found: re.Match[str]) -> str:
    return "[" + " ".join(found[0].strip("[]").split()) + "]"


def read_json(path: Path, *, next_step: str) -> Json:
    """Return the JSON object in a file.

    Args:
        path: The file.
        next_step: What the user can do if it cannot be read; ends the message.

    Raises:
        CaseError: The file is missing, unreadable, truncated, not UTF-8, nested too deeply or not
            an object.
    """
    try:
        return parse_json(path.read_bytes().decode("utf-8"), where=path.name)
    except CaseError as error:
        raise CaseError(f"{error}, in {path.parent}; {next_step}") from error
    except (OSError, UnicodeDecodeError) as error:
        raise CaseError(
            f"{path.name} in {path.parent} cannot be read ({error}); {next_step}"
        ) from error


def parse_json(text: str | bytes, *, where: str) -> Json:
    """Return the JSON object in a text; `where` names the text in errors.

    Raises:
        CaseError: It is no JSON, holds NaN, Infinity or a key twice, is nested too deeply, or is
            not an object.
    """
    try:
        data = json.loads(text, parse_constant=_refuse_constant, object_pairs_hook=_once)
    except (ValueError, RecursionError) as error:
        raise CaseError(f"{where} is not valid JSON, perhaps cut short ({error})") from error
    return expect(data, dict, where)


def _refuse_constant(name: str) -> object:
    raise ValueError(f"{name} is not JSON")


def _once(pairs: list[tuple[str, object]]) -> Json:
    """Return an object; of two values under one key, nobody could say which one counts."""
    data = dict(pairs)
    if len(data) == len(pairs):
        return data
    names = [name for name, _ in pairs]
    twice = next(name for name in names if names.count(name) > 1)
    raise ValueError(f"key {twice!r} is given twice")


def expect(value: object, kind: type[T], where: str) -> T:
    """Return `value` if it is exactly of a JSON type (a bool is no int, an int is no float).

    `object` takes any value.

    Raises:
        CaseError: It is not.
    """
    if kind is object or type(value) is kind:
        return cast("T", value)
    found = "null" if value is None else f"{_kind_name(type(value))} {short(value)}"
    raise CaseError(f"{where}: expected {_kind_name(kind)}, found {found}")


def member(data: Mapping[str, object], key: str, kind: type[T], where: str) -> T:
    """Return `data[key]` of a JSON type.

    Raises:
        CaseError: The key is missing (the nearest present key is suggested), or its type is wrong.
    """
    if key not in data:
        raise CaseError(f"{where}: {key!r} is missing{nearest(key, data)}")
    return expect(data[key], kind, f"{where}.{key}")


def optional(data: Mapping[str, object], key: str, kind: type[T], where: str) -> T | None:
    """Return `data[key]` of a JSON type, or None where it is missing or null.

    Raises:
        CaseError: Its type is wrong.
    """
    value = data.get(key)
    return None if value is None else expect(value, kind, f"{where}.{key}")


def items(data: Mapping[str, object], key: str, kind: type[T], where: str) -> list[T]:
    """Return the list `data[key]`, each of whose items has the given JSON type.

    Raises:
        CaseError: The key is missing, it is no list, or an item has another type.
    """
    found = member(data, key, list, where)
    return [expect(item, kind, f"{where}.{key}[{index}]") for index, item in enumerate(found)]


def _kind_name(kind: type) -> str:
    names = {
        dict: "an object",
        list: "a list",
        str: "a string",
        int: "an integer",
        float: "a number",
    }
    return names.get(kind, "null" if kind is type(None) else f"a {kind.__name__}")


def short(value: object) -> str:
    """Return a JSON value for an error message."""
    text = "null" if value is None else repr(value)
    return text if len(text) <= 60 else text[:57] + "..."
