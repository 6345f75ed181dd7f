"""The settings of torch's compilers, by their full names: `torch._dynamo.config.NAME`.

A `repro.py` of torch sets options of `torch._inductor.config` and its siblings, and variables of
the environment, as soon as it runs: `restore_settings` undoes them.
"""

import importlib
import os
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from types import ModuleType
from typing import Any

INDUCTOR = "torch._inductor.config."
"""Prefix of the full names of Inductor's options."""

MODULES = (
    INDUCTOR.removesuffix("."),
    "torch._dynamo.config",
    "torch._functorch.config",
    "torch.compiler.config",
    "torch.fx.experimental._config",
)
"""The modules of settings that a compile reads, in torch 2.11 to 2.15.

Each has `get_config_copy`: the values that were set, also where another setting implies another
value (`implied`).
"""


@contextmanager
def set_options(settings: Mapping[str, object]) -> Generator[None]:
    """Set each name to its value inside the block; all are settings (`is_setting`)."""
    holders = {name: _holder_of(name) for name in settings}
    undo = [(owner, attribute, getattr(owner, attribute)) for owner, attribute in holders.values()]
    try:
        for name, value in settings.items():
            owner, attribute = holders[name]
            setattr(owner, attribute, value)
        yield
    finally:
        for owner, attribute, value in reversed(undo):
            setattr(owner, attribute, value)


@contextmanager
def restore_settings() -> Generator[dict[str, object]]:
    """Restore environment and options after the block; yields the changed options of Inductor.

    The dict is filled when the block ends without an exception: `{"cpp.threads": 1}`.
    """
    changed: dict[str, object] = {}
    environment = dict(os.environ)
    modules: dict[str, Any] = {name: importlib.import_module(name) for name in MODULES}
    before = {name: module.get_config_copy() for name, module in modules.items()}
    try:
        yield changed
        changed |= _difference(before[MODULES[0]], modules[MODULES[0]].get_config_copy())
    finally:
        for name, module in modules.items():
            for key, value in _difference(module.get_config_copy(), before[name]).items():
                owner, attribute = _holder_of(f"{name}.{key}")
                setattr(owner, attribute, value)
        for name in os.environ.keys() - environment.keys():
            del os.environ[name]
        os.environ.update(environment)


def implied(module: Any, values: Mapping[str, object]) -> frozenset[str]:
    """Return the settings of a module that values of others fix; none before torch 2.15.

    There `numerics="strict"` implies `emulate_precision_casts=True` over any other value.
    """
    rules = {name: getattr(entry, "implies", None) for name, entry in module._config.items()}
    chosen = (rule.get(values.get(name), ()) for name, rule in rules.items() if rule)
    return frozenset(name for targets in chosen for name in targets)


def is_setting(name: str) -> bool:
    """Return whether torch has a setting of this name; modules, classes and groups are none."""
    try:
        owner, attribute = _holder_of(name)
    except LookupError:
        return False
    value = getattr(owner, attribute)
    is_group = "config" in type(value).__name__.lower()  # torch._inductor.config.cpp
    return not (isinstance(value, ModuleType | type) or is_group)


def may_be(name: str, value: object) -> bool:
    """Return whether a setting may take a value: a text setting no number, and vice versa."""
    owner, attribute = _holder_of(name)
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


def _difference(before: dict[str, Any], after: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in after.items() if before.get(key, _NOTHING) != value}


_NOTHING = object()


def _holder_of(name: str) -> tuple[Any, str]:
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
