"""The options of the target `ctk` that a case may set without trust.

All except the user's own passes: `custom_passes` names code, unless it is empty.
"""

import re
from collections.abc import Callable, Mapping
from typing import cast, get_args

from ctk.compiler.options.choices import OnFailure

GENERATORS = ("c", "triton", "torchscript", "eager")
"""The code generators; a test holds them to the table CODEGENS."""

MOST = 2**40
"""Largest number that an option may have: a count of bytes."""

WORDS = frozenset((
    "pad_mm.enabled", "pad_mm.devices", "pad_mm.decisions", "tune_products.enabled",
    "tune_products.decisions", "kernels.accumulate", "c.sanitize",
))  # fmt: skip
"""Options of passes and generators with words as values, none of which creates a file or code.
Flags of the C compiler (`c.flags`) are left out: they can name files and plugins.
"""

_PASS = re.compile(r"[\w./#-]{1,200}")
_OPTION = re.compile(r"\w{1,100}")


def is_harmless(key: str, value: object) -> bool:
    """Return whether an option of `ctk` may have this value without trust."""
    if key in _CHECKS:
        return _CHECKS[key](value)
    step, _, option = key.rpartition(".")
    return bool(step) and _is_option(step, option, value)


def _is_option(step: object, option: object, value: object) -> bool:
    """Return whether a pass may have an option: a switch, a number, or known words."""
    is_named = isinstance(step, str) and _PASS.fullmatch(step) is not None
    is_named &= isinstance(option, str) and _OPTION.fullmatch(option) is not None
    is_plain = value is None or isinstance(value, bool) or is_number(value, -MOST, MOST)
    is_word = f"{str(step).rpartition('/')[2]}.{option}" in WORDS
    return is_named and (is_plain or (is_word and _are_names(value)))


def is_number(value: object, least: float, most: float) -> bool:
    """Return whether a value is an int or a float within bounds; a bool is not one."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return least <= value <= most


def _one_of(allowed: tuple[str, ...]) -> Callable[[object], bool]:
    return lambda value: isinstance(value, str) and value in allowed


def _as_list(value: object) -> list[object]:
    """Return several values, or one, as a list."""
    return list(cast("list[object]", value)) if isinstance(value, list | tuple) else [value]


def _are_generators(value: object) -> bool:
    return all(each in GENERATORS for each in _as_list(value))


def _are_names(value: object) -> bool:
    names = _as_list(value)
    is_name = (isinstance(name, str) and _PASS.fullmatch(name) is not None for name in names)
    return len(names) <= 1000 and all(is_name)


def _are_names_or_all(value: object) -> bool:
    """Return whether a value is names; `*` means all passes."""
    return _are_names([each for each in _as_list(value) if each != "*"])


def _are_pass_options(value: object) -> bool:
    steps = cast("Mapping[object, object]", value) if isinstance(value, dict) else None
    return steps is not None and all(
        isinstance(options, dict)
        and all(_is_option(step, *item) for item in cast("dict[object, object]", options).items())
        for step, options in steps.items()
    )


def _is_empty(value: object) -> bool:
    return isinstance(value, dict) and not any(cast("dict[object, object]", value).values())


_CHECKS: Mapping[str, Callable[[object], bool]] = {
    "codegen": _one_of(("auto", *GENERATORS)),
    "fallback": _are_generators,
    "passes": _are_pass_options,
    "decompositions": _are_names,
    "custom_passes": _is_empty,
    "disable": _are_names_or_all,
    "fuel": lambda value: value is None or (isinstance(value, int) and is_number(value, 0, MOST)),
    "on_failure": _one_of(get_args(OnFailure)),
    "verify": lambda value: isinstance(value, bool),
    "freezing": lambda value: isinstance(value, bool),
    "freezing_discard": lambda value: isinstance(value, bool),
}
