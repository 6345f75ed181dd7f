"""Config: every option of the pipeline, immutable, changed by patching.

An option reaches a compile in this order, later ones win: the defaults, the `CTK_*` environment
variables, the ambient `with patch(...)`, the `config=`/`options=` of the call. There is no mutable
module state besides the context variable.
"""

import contextlib
import dataclasses
from collections.abc import Callable, Generator, Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, TypeAlias, cast, get_args

from ctk.compiler.choices import OnFailure, PassSlot
from ctk.compiler.errors import ConfigError, nearest

if TYPE_CHECKING:
    from ctk.compiler.rewriting.base import Pass

CustomPass: TypeAlias = "Pass | Callable[..., object] | str"


@dataclass(frozen=True, slots=True)
class Config:
    """Options of one compile.

    Attributes:
        codegen: Code generator that is asked first, by its name in the table CODEGENS (which a
            compile checks: this module does not know it).
        fallback: Code generators that are asked next, in order, when one cannot take a graph.
        custom_passes: The user's own passes per slot: a `Pass`, a function of a `Rewriter`,
            `GraphModule` or `Graph`, `"module:function"`, `"path/to/file.py:function"`, or the name
            of an entry point of the group `ctk.passes`.
        disable: Passes that do not run: `name`, `stage/name` or `stage/name#2` (its second run).
        fuel: How many rewrites may happen in the compile; None for all.
        on_failure: What a failing compile does: `raise`, `fallback` to eager with a log line, or
            `warn` and fall back.
        verify: Check each changed graph after each pass (lint, types against fake tensors).
        freezing: Make parameters constants of inference graphs and fold them. Later changes to them
            are not seen.
    """

    codegen: str = "torchscript"
    fallback: tuple[str, ...] = ("torchscript", "eager")
    custom_passes: Mapping[PassSlot, tuple[CustomPass, ...]] = field(
        default_factory=dict[PassSlot, tuple[CustomPass, ...]]
    )
    disable: tuple[str, ...] = ()
    fuel: int | None = None
    on_failure: OnFailure = "raise"
    verify: bool = True
    freezing: bool = False

    def __post_init__(self) -> None:
        for name, check in _CHECKS.items():
            object.__setattr__(self, name, check(name, getattr(self, name)))

    def patch(self, changes: Mapping[str, object] | None = None, **more: object) -> "Config":
        """Return a copy with some options changed.

        Raises:
            ConfigError: An option is unknown or its value is not allowed; says what is.
        """
        merged = {**(changes or {}), **more}
        names = [f.name for f in dataclasses.fields(self)]
        for name in merged:
            if name not in names:
                raise ConfigError(
                    f"unknown option {name!r}{nearest(name, names)}; "
                    f"the options of ctk are {', '.join(names)}"
                )
        return dataclasses.replace(self, **cast("dict[str, object]", merged))  # type: ignore[arg-type]  # checked above

    def differences(self) -> dict[str, object]:
        """Return the options that differ from the defaults."""
        default = Config()
        names = (f.name for f in dataclasses.fields(self))
        return {
            name: getattr(self, name)
            for name in names
            if getattr(self, name) != getattr(default, name)
        }


def _one_of(allowed: tuple[str, ...]) -> Callable[[str, object], object]:
    def check(name: str, value: object) -> object:
        if value not in allowed:
            hint = nearest(str(value), allowed)
            raise ConfigError(
                f"{name}={value!r} is not allowed{hint}; allowed: {', '.join(allowed)}"
            )
        return value

    return check


def _boolean(name: str, value: object) -> object:
    if not isinstance(value, bool):
        raise ConfigError(f"{name}={value!r} is not allowed; allowed: True, False")
    return value


def _fuel(name: str, value: object) -> object:
    if value is not None and (not isinstance(value, int) or isinstance(value, bool) or value < 0):
        raise ConfigError(
            f"{name}={value!r} is not allowed; allowed: None or a count of rewrites from 0"
        )
    return value


def _string(name: str, value: object) -> object:
    if not isinstance(value, str):
        raise ConfigError(f"{name}={value!r} is not allowed; allowed: a name")
    return value


def _strings(name: str, value: object) -> tuple[str, ...]:
    items = (value,) if isinstance(value, str) else value
    if not isinstance(items, (list, tuple)):
        raise ConfigError(f"{name}={value!r} is not allowed; allowed: a list of names")
    for item in cast("tuple[object, ...]", items):
        if not isinstance(item, str):
            raise ConfigError(f"{name} contains {item!r}; allowed: a list of names (strings)")
    return tuple(cast("tuple[str, ...]", items))


def _custom_passes(name: str, value: object) -> object:
    if not isinstance(value, Mapping):
        raise ConfigError(
            f"{name}={value!r} is not allowed; allowed: a mapping from a slot "
            f"({', '.join(get_args(PassSlot))}) to a list of passes"
        )
    checked: dict[str, tuple[object, ...]] = {}
    for slot, passes in cast("Mapping[str, object]", value).items():
        _one_of(get_args(PassSlot))(f"{name} slot", slot)
        items = cast(
            "tuple[object, ...]", passes if isinstance(passes, (list, tuple)) else (passes,)
        )
        for item in items:
            if not (isinstance(item, str) or callable(item) or hasattr(item, "run")):
                raise ConfigError(
                    f"{name}[{slot!r}] contains {item!r}; allowed: a Pass, a function, "
                    "'module:function', 'file.py:function' or the name of a ctk.passes entry point"
                )
        checked[slot] = tuple(items)
    return checked


_CHECKS: Mapping[str, Callable[[str, object], object]] = {
    "codegen": _string,
    "fallback": _strings,
    "custom_passes": _custom_passes,
    "disable": _strings,
    "fuel": _fuel,
    "on_failure": _one_of(get_args(OnFailure)),
    "verify": _boolean,
    "freezing": _boolean,
}

_NOTHING: Mapping[str, object] = MappingProxyType({})
_ambient: ContextVar[Mapping[str, object]] = ContextVar("ctk_config", default=_NOTHING)


@contextlib.contextmanager
def patch(**changes: object) -> Generator[None]:
    """Change options for the compiles that start inside the `with` block.

    Raises:
        ConfigError: An option is unknown or its value is not allowed.
    """
    Config().patch(changes)
    token = _ambient.set({**_ambient.get(), **changes})
    try:
        yield
    finally:
        _ambient.reset(token)


def resolve(config: "Config | Mapping[str, object] | None") -> Config:
    """Return the Config of a call: a Config as it is, a mapping as a patch of the ambient one."""
    if isinstance(config, Config):
        return config
    from ctk.compiler.environment import read_environment

    return Config().patch(read_environment().config_changes()).patch(_ambient.get()).patch(config)
