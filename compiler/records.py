"""Frozen dataclasses and tagged values as JSON: one declaration for both directions.

    SIZE = record(Size, symbol=renamed("size", TEXT), axis=optional(INTEGER))
    Size("s0", None)  <->  {"size": "s0", "axis": null}

    VALUE = Forms("value", (Form("tuple", (tuple,), write_all, read_all), ...))
    (1, 2)  <->  {"tuple": [1, 2]}

A `Codec` writes a value and reads it back. Reading checks every type, because a seal proves only
that a file is unchanged, not that it was written correctly: the error names the place of the wrong
value (`steps[3].shape[0]: "x" is not an integer`). Unknown keys are ignored.
"""

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, cast

import torch

Json = Any
"""None, bool, int, float, str, a list of these, or a dict of these by string."""

REQUIRED = object()
"""Stands for the value of a field that its record always holds."""

_SHOWN = 80


class Malformed(ValueError):
    """JSON of another shape than declared."""


@dataclass(frozen=True, slots=True)
class Codec:
    """A value as JSON and back.

    Attributes:
        key: Under which key a record keeps it; empty for the name of the field.
        omitted: The value of a field that its record leaves out.
    """

    write: Callable[[Any], Json]
    read: Callable[[Json], Any]
    key: str = ""
    omitted: object = REQUIRED


def shown(data: object) -> str:
    """Return the start of a value, for messages."""
    return str(data)[:_SHOWN]


def _plain(kind: type, noun: str) -> Codec:
    def read(data: Json) -> Any:
        if type(data) is not kind:
            raise Malformed(f"{shown(data)!r} is not {noun}")
        return data

    return Codec(lambda value: value, read)


TEXT = _plain(str, "a text")
INTEGER = _plain(int, "an integer")
FLAG = _plain(bool, "true or false")
OBJECT = _plain(dict, "an object")


def renamed(key: str, codec: Codec, *, omitted: object = REQUIRED) -> Codec:
    """Return the codec of a field that stands under another key, or that may be left out."""
    return Codec(codec.write, codec.read, key, omitted)


def optional(codec: Codec) -> Codec:
    """Return the codec of a value that may be None."""
    return Codec(
        lambda value: None if value is None else codec.write(value),
        lambda data: None if data is None else codec.read(data),
    )


def sequence(codec: Codec) -> Codec:
    """Return the codec of a tuple, which is a list in JSON."""

    def read(data: Json) -> tuple[Any, ...]:
        parts = _require(data, list, "a list")
        return tuple(_read_part(codec, part, f"[{n}]") for n, part in enumerate(parts))

    return Codec(lambda values: [codec.write(value) for value in values], read)


def mapping(codec: Codec, key: Codec = TEXT) -> Codec:
    """Return the codec of a mapping by strings."""

    def read(data: Json) -> dict[str, Any]:
        pairs = _require(data, dict, "an object").items()
        return {key.read(name): _read_part(codec, part, f".{name}") for name, part in pairs}

    return Codec(lambda values: {n: codec.write(value) for n, value in values.items()}, read)


def row(kind: type, /, **fields: Codec) -> Codec:
    """Return the codec of a dataclass that is a list of its fields: `["s0", "<", 8]`."""

    def read(data: Json) -> Any:
        parts = _require(data, list, "a list")
        if len(parts) != len(fields):
            raise Malformed(f"{len(parts)} values for {', '.join(fields)}")
        pairs = zip(fields.items(), parts, strict=True)
        return kind(**{n: _read_part(codec, part, f".{n}") for (n, codec), part in pairs})

    return Codec(lambda value: [c.write(getattr(value, n)) for n, c in fields.items()], read)


def record(kind: type, constants: Mapping[str, Json] | None = None, /, **fields: Codec) -> Codec:
    """Return the codec of a dataclass that is an object of its fields.

    Args:
        constants: Keys written first, with values that are the same for all objects of the class.
        fields: Each field, in the order in which it is written.
    """

    def write(value: Any) -> Json:
        data: dict[str, Json] = dict(constants or {})
        for name, codec in fields.items():
            part = getattr(value, name)
            if codec.omitted is REQUIRED or part != codec.omitted:
                data[codec.key or name] = codec.write(part)
        return data

    def read(data: Json) -> Any:
        pairs = _require(data, dict, "an object")
        found: dict[str, Any] = {}
        for name, codec in fields.items():
            key = codec.key or name
            if key in pairs:
                found[name] = _read_part(codec, pairs[key], f".{key}")
            elif codec.omitted is REQUIRED:
                raise Malformed(f"{key} is missing in {shown(data)}")
        return kind(**found)

    return Codec(write, read)


def union(
    tag_of: Callable[[Mapping[str, Json]], Json], cases: Mapping[str, tuple[type, Codec]]
) -> Codec:
    """Return the codec of one of several records."""
    codecs = dict(cases.values())

    def read(data: Json) -> Any:
        tag = tag_of(_require(data, dict, "an object"))
        if tag not in cases:
            raise Malformed(f"{tag!r} is not known: one of {', '.join(cases)}")
        return cases[tag][1].read(data)

    return Codec(lambda value: codecs[type(value)].write(value), read)


@dataclass(frozen=True, slots=True)
class Form:
    """Values of these classes and their subclasses as `{tag: content}`; without a tag, any JSON."""

    tag: str
    kinds: tuple[type, ...] = ()
    write: Callable[[Any], Json] = str
    read: Callable[[Json], Any] = str


@dataclass(frozen=True, slots=True)
class Forms:
    """Values of many types: plain ones and lists as they are, others by the first form that fits.

    Attributes:
        plain: Classes of plain values; infinities and NaN are not plain.
        errors: Exceptions of a form for content that it cannot read.
    """

    noun: str
    plain: tuple[type, ...]
    forms: tuple[Form, ...]
    errors: tuple[type[Exception], ...]

    def write(self, value: Any) -> Json:
        """Return a value as JSON.

        Raises:
            TypeError: No form fits.
        """
        is_finite = type(value) is not float or math.isfinite(value)
        if value is None or (type(value) in self.plain and is_finite):
            return value
        if isinstance(value, list):
            return [self.write(part) for part in cast("list[Any]", value)]
        for form in self.forms:
            if isinstance(value, form.kinds):
                return {form.tag: form.write(value)} if form.tag else form.write(value)
        raise TypeError(f"a {type(value).__qualname__} has no form")

    def write_all(self, values: Iterable[Any]) -> Json:
        """Return values as a list of JSON."""
        return [self.write(value) for value in values]

    def read(self, data: Json) -> Any:
        """Return the value of `write`'s JSON.

        Raises:
            Malformed: There is no such form, or its content is wrong.
        """
        if data is None or type(data) in (bool, int, str, float):
            return data
        if isinstance(data, list):
            return [self.read(part) for part in cast("list[Json]", data)]
        pairs = cast("dict[str, Json]", data) if isinstance(data, dict) else {}
        form = next((each for each in self.forms if each.tag and [each.tag] == [*pairs]), None)
        if form is None:
            raise Malformed(f"a stored {self.noun} is malformed: {shown(data)}")
        content = pairs[form.tag]
        try:
            return form.read(content)
        except self.errors as error:
            raise Malformed(f"{shown(content)} is not a {form.tag}: {error}") from error


def torch_word(value: object) -> str:
    """Return `float32` of `torch.float32`."""
    return str(value).removeprefix("torch.")


def torch_value(word: str, *kinds: type) -> Any:
    """Return the value of a torch name, if it is of one of some classes.

    Raises:
        TypeError: Torch has something else of that name.
        AttributeError: Torch has nothing of that name.
    """
    found = getattr(torch, word)
    if not isinstance(found, kinds):
        raise TypeError("torch has something else of that name")
    return found


def _require(data: Json, kind: type, noun: str) -> Any:
    if not isinstance(data, kind):
        raise Malformed(f"{shown(data)!r} is not {noun}")
    return data


def _read_part(codec: Codec, data: Json, place: str) -> Any:
    """Read a part, and prefix the message of an error with its place."""
    try:
        return codec.read(data)
    except Malformed as error:
        text = str(error)
        inner = text if text[:1] in ".[" else f": {text}"
        raise Malformed(f"{place}{inner}") from error
