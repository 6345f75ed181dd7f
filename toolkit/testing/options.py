"""The options of the pytest plugin, and its marker. Imports no torch."""

import math
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, cast, get_args

import pytest

from ctk.compiler.errors import WrongCompile, any_of, nearest

Mode = Literal["off", "dump", "check"]

_WORDS: Mapping[str, tuple[type, str]] = {
    "off": (bool, "True or False"),
    "target": (str, "a target"),
    "config": (Mapping, "options by name"),
}
"""The keywords of the mark, with their types."""


@dataclass(frozen=True, slots=True)
class SuiteOptions:
    """The options of one run of pytest.

    Attributes:
        target: The target spec that compiles in place of each backend with a name; empty: none.
        out: Folder of cases and outcomes, absolute.
        diagnose: Whether each failing case is diagnosed at once.
        seconds: Longest diagnosis of one test.
        calls: Number of first calls of each function that are compared in each test.
    """

    mode: Mode
    target: str
    out: Path
    diagnose: bool
    seconds: float
    calls: int

    @classmethod
    def of(cls, config: pytest.Config) -> "SuiteOptions":
        """Read them from the command line, else from the ini file.

        Raises:
            UsageError: A value is not allowed.
        """
        mode = _value(config, "ctk")
        if mode not in get_args(Mode):
            allowed = get_args(Mode)
            raise pytest.UsageError(
                f"--ctk takes {any_of(allowed)}, not {mode!r}{nearest(mode, allowed)}"
            )
        out = config.invocation_params.dir / Path(_value(config, "ctk_out")).expanduser()
        above = next(each for each in (out, *out.parents) if each.exists())
        if not (above.is_dir() and os.access(above, os.W_OK | os.X_OK)):
            raise pytest.UsageError(
                f"--ctk-out={out}: {above} is not a folder that you may write to; name another one"
            )
        given = config.getoption("ctk_diagnose")
        return cls(
            mode=cast("Mode", mode),
            target=_value(config, "ctk_target"),
            out=out,
            diagnose=bool(config.getini("ctk_diagnose") if given is None else given),
            seconds=_number(config, "ctk_seconds", 1),
            calls=int(_number(config, "ctk_calls", 0)),
        )


@dataclass(frozen=True, slots=True)
class Marker:
    """The marks of one test; of the marks `ctk` the closest one decides each word.

    Attributes:
        is_off: Whether the test is not watched.
        target: A target spec for its compiles; empty: that of the run.
        config: Options that are added to those of its compiles.
        is_known: Whether it always expects a `WrongCompile` (`xfail`), so that no diagnosis is due.
    """

    is_off: bool = False
    target: str = ""
    config: Mapping[str, object] = field(default_factory=dict[str, object])
    is_known: bool = False


def read_marker(item: pytest.Item | pytest.Collector) -> Marker:
    """Return the marks of a test.

    Raises:
        UsageError: A mark has a word that it does not take, or a value of another type.
    """
    words: dict[str, Any] = {}
    for mark in item.iter_markers("ctk"):
        for word in (*mark.kwargs, *map(repr, mark.args)):
            if word not in _WORDS:
                raise pytest.UsageError(
                    f"{item.nodeid}: the mark ctk takes the keywords {any_of(_WORDS)}, not {word}"
                    f"{nearest(word, _WORDS)}"
                )
        for word, value in mark.kwargs.items():
            kind, description = _WORDS[word]
            if value is not None and not isinstance(value, kind):
                raise pytest.UsageError(
                    f"{item.nodeid}: {word}= of the mark ctk takes {description}, not {value!r}"
                )
        words = {**mark.kwargs, **words}
    return Marker(
        words.get("off") or False,
        words.get("target") or "",
        words.get("config") or {},
        any(map(_expects_wrong_compile, item.iter_markers("xfail"))),
    )


def _expects_wrong_compile(mark: pytest.Mark) -> bool:
    raises = mark.kwargs.get("raises")
    is_expected = WrongCompile in (raises if isinstance(raises, tuple) else (raises,))
    return is_expected and not mark.args and "condition" not in mark.kwargs


def _value(config: pytest.Config, key: str) -> str:
    return str(config.getoption(key) or config.getini(key))


def _number(config: pytest.Config, key: str, least: float) -> float:
    text = _value(config, key)
    try:
        number = float(text)
    except ValueError:
        number = least - 1
    if not (math.isfinite(number) and number >= least):
        flag = f"--{key.replace('_', '-')}"
        raise pytest.UsageError(f"{flag} takes a number from {least:g}, not {text!r}")
    return number
