"""Settings of torch by their full names, put on for a while: `torch._dynamo.config.NAME`.

What it does not do: say which settings there are; torch does.
"""

import importlib
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from types import ModuleType
from typing import Any

INDUCTOR = "torch._inductor.config."
"""What the names of Inductor's options begin with, in full."""


@contextmanager
def settings_put_on(settings: Mapping[str, object]) -> Generator[None]:
    """Set each name to its value inside the block; all are settings (`is_setting`)."""
    undo: list[tuple[Any, str, object]] = []
    try:
        for name, value in settings.items():
            owner, attribute = _found(name)
            undo.append((owner, attribute, getattr(owner, attribute)))
            setattr(owner, attribute, value)
        yield
    finally:
        for owner, attribute, value in reversed(undo):
            setattr(owner, attribute, value)


def is_setting(name: str) -> bool:
    """Return whether torch has a setting of this name; modules, classes and groups are none."""
    try:
        owner, attribute = _found(name)
    except LookupError:
        return False
    value = getattr(owner, attribute)
    is_group = "config" in type(value).__name__.lower()  # torch._inductor.config.cpp
    return not (isinstance(value, ModuleType | type) or is_group)


def may_be(name: str, value: object) -> bool:
    """Return whether a setting takes a text, or else a number, where it is one of these now."""
    owner, attribute = _found(name)
    now = getattr(owner, attribute)
    try:
        hint = repr(owner.get_type(attribute))
    except Exception:  # torch 2.11 has none, and no setting outside its config modules
        hint = ""
    if isinstance(now, bool | int | float) and isinstance(value, str):
        return "str" in hint or "Literal" in hint
    if isinstance(now, str) and isinstance(value, bool | int | float):
        return any(word in hint for word in ("bool", "int", "float"))
    return True


def _found(name: str) -> tuple[Any, str]:
    """Return who holds a setting, and its name there: `torch._inductor.config.cpp.threads`."""
    holder, _, attribute = name.rpartition(".")
    parts, inner = holder.split("."), list[str]()
    while parts:
        try:
            owner: Any = importlib.import_module(".".join(parts))
        except ModuleNotFoundError:
            inner.insert(0, parts.pop())
            continue
        for part in inner:
            owner = getattr(owner, part, None)
        if hasattr(owner, attribute):
            return owner, attribute
        break
    raise LookupError(f"torch has no setting {name}")
