"""Types for the fields of documents, checked when an untrusted document is read.

`Line` is text for people and made printable; values of the other types are refused when wrong.
Documents that ctk creates itself are not checked.
"""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, Field

from ctk.repro_templates.graph.settings import SETTINGS
from ctk.toolkit.case.formats.limits import NAME_LENGTH, TEXT_LENGTH
from ctk.toolkit.case.formats.plain_text import is_plain, one_line, quote_value
from ctk.toolkit.case.formats.scalars import dtypes


def _spec(text: str) -> str:
    if is_plain(text, TEXT_LENGTH):
        return text
    raise ValueError(f"{quote_value(text)} is not one line of printable characters")


def _matching(pattern: str, what: str) -> AfterValidator:
    compiled = re.compile(pattern)

    def check(text: str) -> str:
        if len(text) <= NAME_LENGTH and compiled.fullmatch(text):
            return text
        raise ValueError(f"{quote_value(text)} is not a {what}")

    return AfterValidator(check)


def _inner_path(text: str) -> str:
    path = Path(text)
    if path.is_absolute() or ".." in path.parts:
        raise ValueError(f"{quote_value(text)} leads out of its folder")
    return text


def _float_dtype(name: str) -> str:
    found = dtypes().get(name)
    if found is not None and found.is_floating_point:
        return name
    raise ValueError(f"{quote_value(name)} is not a floating dtype (`float32`)")


def _settings(found: Mapping[str, bool | str]) -> Mapping[str, bool | str]:
    for name, value in found.items():
        known = SETTINGS.get(name)
        if known is None or value not in known.allowed:
            raise ValueError(
                f"{quote_value(name)} = {quote_value(str(value))} is not a setting of torch"
            )
    return found


def _seed(value: int) -> int:
    if -(1 << 63) <= value < 1 << 64:
        return value
    raise ValueError(f"{value} is not a seed of 64 bits")


Line = Annotated[str, AfterValidator(one_line)]
"""Text for people, in one printable line."""

InnerPath = Annotated[Line, AfterValidator(_inner_path)]
"""The path of a file inside a folder, relative to it."""

Spec = Annotated[str, AfterValidator(_spec)]
"""A text that ctk uses unchanged (a target): one printable line."""

Module = Annotated[
    str,
    _matching(r"\w[\w-]*(\.\w[\w-]*)*|[\w .+@~/-]+\.py", "name of a module or of a Python file"),
]
"""A dotted name of a Python module, or the path of a Python file."""

Symbol = Annotated[str, _matching(r"[\w +\-*/%().,<>=!&|~^]+", "expression of symbolic sizes")]
"""An expression of symbolic sizes: `2*s77`."""

DeviceType = Annotated[str, _matching(r"[a-z]{2,20}", "type of device (`cuda`)")]

DefaultDevice = Annotated[str, _matching(r"([a-z]{2,20}(:\d{1,3})?)?", "device (`cuda:0`)")]

Count = Annotated[int, Field(ge=0)]

Positive = Annotated[int, Field(gt=0)]

Size = Annotated[float, Field(ge=0)]

Settings = Annotated[Mapping[str, bool | str], AfterValidator(_settings)]

NumberText = Annotated[str, _matching(r"True|False|[-+0-9a-z.()]{1,64}", "number")]

Sha256 = Annotated[str, _matching(r"[0-9a-f]{64}", "SHA-256")]

FloatDtype = Annotated[str, AfterValidator(_float_dtype)]

Seed = Annotated[int, AfterValidator(_seed)]
