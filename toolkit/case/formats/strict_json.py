"""Strict JSON: no NaN, no duplicate keys; a wrong type is a `CaseError` with its place.

The accessors are for values whose own keys name their type (a graph's arguments); documents of a
fixed shape are declared as classes (`schema`).
"""

import contextlib
import json
import re
from array import array
from collections import Counter
from collections.abc import Generator, Mapping
from itertools import accumulate
from pathlib import Path
from typing import Any, TypeVar, cast

from ctk.compiler.errors import CaseError, nearest
from ctk.toolkit.case.formats.bounded_file import read_bounded
from ctk.toolkit.case.formats.limits import BRACKETS, DEPTH, DIGITS, DOCUMENT_NBYTES, check_at_most
from ctk.toolkit.case.formats.plain_text import quote_value

T = TypeVar("T")

Json = dict[str, Any]

_NUMBERS = re.compile(r"\[\n[\d\s.,eE+-]*\]")
"""A list of numbers, to be written on one line. (Strings of JSON hold no line breaks.)"""


def dump_json(data: object) -> str:
    """Return JSON text with a fixed layout. Floats must be finite."""
    text = json.dumps(data, indent=1, allow_nan=False)
    return _NUMBERS.sub(_one_line, text) + "\n"


def _one_line(found: re.Match[str]) -> str:
    return "[" + " ".join(found[0].strip("[]").split()) + "]"


def read_json(path: Path, *, next_step: str, limit: int = DOCUMENT_NBYTES) -> Json:
    """Return the JSON object in a file.

    Args:
        next_step: Advice if it cannot be read; ends the message.

    Raises:
        CaseError: The file is missing, unreadable or too large, truncated, not UTF-8, nested
            too deeply, or not an object.
    """
    try:
        return parse_json(read_bounded(path, limit).decode("utf-8"), where=path.name)
    except CaseError as error:
        raise CaseError(f"{error}, in {path.parent}; {next_step}") from error
    except (OSError, UnicodeDecodeError) as error:
        why = (error.strerror if isinstance(error, OSError) else None) or error
        raise CaseError(
            f"{path.name} in {path.parent} cannot be read ({why}); {next_step}"
        ) from error


def parse_json(text: str | bytes, *, where: str) -> Json:
    """Return the JSON object in a text; `where` names the text in errors.

    Raises:
        CaseError: It is not JSON, holds NaN, Infinity, a duplicate key or a lone surrogate, is
            nested too deeply, or is not an object.
    """
    _measure(text if isinstance(text, bytes) else text.encode("utf-8", "replace"), where)
    try:
        data = json.loads(text, parse_constant=_refuse_constant, object_pairs_hook=_once)
    except (ValueError, RecursionError) as error:
        raise CaseError(f"{where} is not valid JSON, perhaps cut short ({error})") from error
    return expect(data, dict, where)


_STRING = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"', re.DOTALL)
_NOT_BRACKETS = bytes(set(range(256)) - set(b"[]{}"))
_STEPS = bytes.maketrans(b"[{]}", b"\x01\x01\xff\xff")
_DIGITS = re.compile(rb"\d{%d}" % (DIGITS + 1))
_HALF = re.compile(rb"\\u[dD][89a-fA-F]")


def _measure(text: bytes, where: str) -> None:
    """Refuse texts that would overload a parser, in a few passes and without recursion.

    Outside of strings only brackets are kept, as steps down and up; their sums are depths: of
    "[[1, 2], {}]" that is "[[]{}]", then 1 1 -1 1 -1 -1, then 1 2 1 2 1 0.
    """
    plain = _STRING.sub(b"0", text)
    matched = _DIGITS.search(plain)
    if matched:
        raise CaseError(
            f"{where}: a number with more than {DIGITS} digits, which starts with "
            f"{matched[0][:20].decode()}"
        )
    steps = array("b", plain.translate(_STEPS, _NOT_BRACKETS))
    check_at_most(len(steps), BRACKETS, f"{where}: brackets")
    if max(accumulate(steps), default=0) > DEPTH:
        raise CaseError(f"{where}: nested more than {DEPTH} deep")
    if _HALF.search(text):
        _check_characters(text, where)


def _check_characters(text: bytes, where: str) -> None:
    try:
        str(json.loads(text)).encode("utf-8")
    except UnicodeEncodeError as error:
        half = quote_value(error.object[error.start : error.start + 1])
        raise CaseError(f"{where}: {half} is half a character, a lone surrogate") from error
    except (ValueError, RecursionError):
        return  # the parser reports the error


def _refuse_constant(name: str) -> object:
    raise ValueError(f"{name} is not JSON")


def _once(pairs: list[tuple[str, object]]) -> Json:
    data = dict(pairs)
    if len(data) == len(pairs):
        return data
    counts = Counter(name for name, _ in pairs)
    raise ValueError(f"key {quote_value(counts.most_common(1)[0][0])} is given twice")


@contextlib.contextmanager
def prefix_errors(where: str) -> Generator[None]:
    """Put the place in front of a `CaseError` of the body."""
    try:
        yield
    except CaseError as error:
        raise type(error)(f"{where}: {error}") from error


def expect(value: object, kind: type[T], where: str) -> T:
    """Return `value` if it is exactly of a JSON type (a bool is not an int, an int not a float).

    `object` takes any value.

    Raises:
        CaseError: It has another type.
    """
    if kind is object or type(value) is kind:
        return cast("T", value)
    found = "null" if value is None else f"{_kind_name(type(value))} {short(value)}"
    raise CaseError(f"{where}: expected {_kind_name(kind)}, found {found}")


def look_up(table: Mapping[str, T], name: str, problem: str) -> T:
    """Return an entry of a table; without one raise `CaseError`, which suggests the nearest."""
    if name in table:
        return table[name]
    raise CaseError(f"{problem}{nearest(name, table)}")


def member(data: Mapping[str, object], key: str, kind: type[T], where: str) -> T:
    """Return `data[key]` of a JSON type; for a missing key the error suggests the nearest one."""
    value = look_up(data, key, f"{where}: {key!r} is missing")
    return expect(value, kind, f"{where}.{key}")


def optional(data: Mapping[str, object], key: str, kind: type[T], where: str) -> T | None:
    """Return `data[key]` of a JSON type, or None if it is missing or null."""
    value = data.get(key)
    return None if value is None else expect(value, kind, f"{where}.{key}")


def items(data: Mapping[str, object], key: str, kind: type[T], where: str) -> list[T]:
    """Return the list `data[key]`, each of whose items has the given JSON type."""
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
    if isinstance(value, dict | list):
        value = _first_items(cast("dict[object, object] | list[object]", value))
    text = "null" if value is None else quote_value(value, 10_000)
    return text if len(text) <= 60 else text[:57] + "..."


def _first_items(value: dict[object, object] | list[object]) -> object:
    """Return the first items, so that a long list is not formatted as a whole."""
    if isinstance(value, dict):
        return {key: value[key] for key in list(value)[:8]}
    return value[:32]
