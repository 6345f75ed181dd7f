"""Config: every option of the pipeline, immutable, changed by patching.

An option reaches a compile in this order, later ones win: the defaults, the settings of torch's
partitioner, the `CTK_*` environment variables, the ambient `with patch(...)`, the
`config=`/`options=` of the call. An option of a pass for one stage (`joint/NAME.OPTION`) wins over
the same for all stages, wherever it was set. There is no mutable module state besides the context
variable.
"""

import contextlib
import dataclasses
from collections.abc import Callable, Container, Generator, Iterable, Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeAlias, cast, get_args

from ctk.compiler.errors import ConfigError, any_of, nearest, not_taken
from ctk.compiler.options.choices import OnFailure, PassSlot
from ctk.compiler.options.inductor_options import nearest_option, translate
from ctk.compiler.torch_compat.aot.functorch_options import partition_changes


class PassLike(Protocol):
    """The attributes of a `Pass` (rewriting/base.py, not imported here) that this module reads."""

    def run(self, rewriter: Any, /) -> object: ...


CustomPass: TypeAlias = PassLike | Callable[..., object] | str


def leaves_out(disable: Iterable[str], names: Container[str], *, is_pass: bool = True) -> bool:
    """Return whether `Config.disable` disables these names; its last matching word counts.

    >>> leaves_out(["*", "-fold"], {"fold", "joint/fold"}), leaves_out(["*"], {"fold"})
    (False, True)

    Args:
        disable: As in `Config`.
        names: All names of the pass.
        is_pass: Whether `*` includes it.
    """
    found = False
    for entry in disable:
        if entry == "*":
            found = found or is_pass
        elif entry.removeprefix("-") in names:
            found = not entry.startswith("-")
    return found


@dataclass(frozen=True, slots=True)
class Config:
    """Options of one compile.

    Attributes:
        codegen: The first code generator to try, by its name in the table CODEGENS (which a
            compile checks: this module does not know it); `auto` is `triton` for a graph with
            tensors on a GPU, `c` for others.
        fallback: Code generators to try next, in order, when one cannot compile a graph.
        passes: Options of passes by name, built-in and custom: `{"fold_constants": {"max_nbytes":
            1024}}`, and for one stage `{"frozen/fold_constants": {...}}`. In a patch also by dotted
            keys: `{"fold_constants.max_nbytes": 1024}`. Checked when a compile starts.
        decompositions: Operators that dispatch takes apart: names of tables (`core_aten`,
            `inductor`) and of operators (`aten.gelu`, `-aten.gelu` keeps it whole); later ones
            win. Checked when a compile starts.
        custom_passes: The user's own passes per slot (`joint` after the built-in ones,
            `before_joint` before them, and so on): a `Pass`, a function of a `Rewriter`,
            `GraphModule` or `Graph`, `"module:function"`, `"path/to/file.py:function"`, or the name
            of an entry point of the group `ctk.passes`.
        disable: Passes that do not run: `name`, `stage/name` or `stage/name#2` (its second run);
            `*` is every pass, `-name` runs nevertheless, the last match counts:
            `["*", "-joint/fold"]` runs `joint/fold` only. Decompositions are not passes: they are
            disabled by name.
        fuel: Limit of the rewrites in the compile; None for none.
        on_failure: Reaction to a failing compile: `raise`, `fallback` to eager with a log line, or
            `warn` and fall back.
        verify: Check each changed graph after each pass (lint, types against fake tensors).
        freezing: Make parameters and buffers constants of inference graphs and fold them. A graph
            whose originals have changed since then runs in eager.
        freezing_discard: Drop the frozen parameters once the compile has succeeded. A parameter
            that is used afterwards raises `DiscardedParameterError`. While an observer watches the
            compile, they stay.
        cache: Store compiled graphs for later processes, and load stored ones; while no observer
            watches the compile. `CTK_CACHE=0` turns it off everywhere.
    """

    codegen: str = "auto"
    fallback: tuple[str, ...] = ("torchscript", "eager")
    passes: Mapping[str, Mapping[str, object]] = field(
        default_factory=dict[str, Mapping[str, object]]
    )
    decompositions: tuple[str, ...] = ()
    custom_passes: Mapping[PassSlot, tuple[CustomPass, ...]] = field(
        default_factory=dict[PassSlot, tuple[CustomPass, ...]]
    )
    disable: tuple[str, ...] = ()
    fuel: int | None = None
    on_failure: OnFailure = "raise"
    verify: bool = True
    freezing: bool = False
    freezing_discard: bool = False
    cache: bool = True

    def __post_init__(self) -> None:
        for name, check in _CHECKS.items():
            object.__setattr__(self, name, check(name, getattr(self, name)))

    def patch(self, changes: Mapping[str, object] | None = None, **more: object) -> "Config":
        """Return a copy with some options changed.

        Args:
            changes: New values by the name of the option. A dotted key `PASS.OPTION` sets one
                option of a pass and leaves the others of `passes` alone. Names of Inductor's
                options are translated (`inductor_options.py`).
            more: The same, for names without dots.

        Raises:
            ConfigError: An option is unknown or its value is not allowed; the message has the
                choices.
        """
        merged = translate({**(changes or {}), **more})
        dotted = {name: merged.pop(name) for name in list(merged) if _is_dotted(name)}
        names = [f.name for f in dataclasses.fields(self)]
        for name in merged:
            if name not in names:
                raise ConfigError(
                    f"unknown option {name!r}{nearest_option(name, names)}; "
                    f"the options of ctk are {', '.join(names)}, "
                    "and PASS.OPTION for an option of a pass"
                )
        changed = dataclasses.replace(self, **cast("dict[str, object]", merged))  # type: ignore[arg-type]  # checked above
        if not dotted:
            return changed
        return dataclasses.replace(changed, passes=_with_dotted(changed.passes, dotted))

    def differences(self) -> dict[str, object]:
        """Return the options that differ from the defaults."""
        default = Config()
        pairs = ((f.name, getattr(self, f.name)) for f in dataclasses.fields(self))
        return {name: value for name, value in pairs if value != getattr(default, name)}


def _one_of(allowed: tuple[str, ...]) -> Callable[[str, object], object]:
    def check(name: str, value: object) -> object:
        if value not in allowed:
            raise not_taken(name, value, any_of(allowed), nearest(str(value), allowed))
        return value

    return check


def _of_type(kind: type, allowed: str) -> Callable[[str, object], object]:
    def check(name: str, value: object) -> object:
        if not isinstance(value, kind):
            raise not_taken(name, value, allowed)
        return value

    return check


_boolean = _of_type(bool, "true or false")


def _fuel(name: str, value: object) -> object:
    if value is not None and (not isinstance(value, int) or isinstance(value, bool) or value < 0):
        raise not_taken(name, value, "a count of rewrites from 0, or None")
    return value


def _strings(name: str, value: object) -> tuple[str, ...]:
    items = (value,) if isinstance(value, str) else value
    if not isinstance(items, (list, tuple)):
        raise not_taken(name, value, "a list of names")
    for item in cast("tuple[object, ...]", items):
        if not isinstance(item, str):
            raise not_taken(name, items, "a list of names (strings)")
    return tuple(cast("tuple[str, ...]", items))


def _is_dotted(name: str) -> bool:
    pass_name, _, option = name.rpartition(".")
    return bool(pass_name and option)


def _with_dotted(
    passes: Mapping[str, Mapping[str, object]], dotted: Mapping[str, object]
) -> dict[str, Mapping[str, object]]:
    """Return options by pass with those of dotted keys added."""
    changed = dict(passes)
    for name, value in dotted.items():
        pass_name, _, option = name.rpartition(".")
        changed[pass_name] = {**changed.get(pass_name, {}), option: value}
    return changed


def _pass_options(name: str, value: object) -> object:
    """Return options by pass, with tuples for lists, so that options read from JSON are equal."""
    allowed = 'a mapping such as {"fold_constants": {"max_nbytes": 1024}}'
    if not isinstance(value, Mapping):
        raise not_taken(name, value, allowed)
    for step, options in cast("Mapping[object, object]", value).items():
        if not isinstance(step, str) or not isinstance(options, Mapping):
            raise not_taken(name, {step: options}, allowed)
    given = cast("Mapping[str, Mapping[str, object]]", value)
    return {
        step: {option: _freeze(each) for option, each in options.items()}
        for step, options in given.items()
    }


def _freeze(value: object) -> object:
    if isinstance(value, (list, tuple)):
        return tuple(map(_freeze, cast("Iterable[object]", value)))
    return value


def _custom_passes(name: str, value: object) -> object:
    if not isinstance(value, Mapping):
        slots = ", ".join(get_args(PassSlot))
        raise not_taken(name, value, f"a mapping from a slot ({slots}) to a list of passes")
    checked: dict[str, tuple[object, ...]] = {}
    for slot, passes in cast("Mapping[str, object]", value).items():
        _one_of(get_args(PassSlot))(f"a slot of {name}", slot)
        items = cast(
            "tuple[object, ...]", passes if isinstance(passes, (list, tuple)) else (passes,)
        )
        for item in items:
            if not (isinstance(item, str) or callable(item) or hasattr(item, "run")):
                allowed = (
                    "a Pass, a function, 'module:function', 'file.py:function' or the name of a "
                    "ctk.passes entry point"
                )
                raise not_taken(f"{name}[{slot!r}]", item, allowed)
        checked[slot] = tuple(items)
    return checked


_CHECKS: Mapping[str, Callable[[str, object], object]] = {
    "codegen": _of_type(str, "a name"),
    "fallback": _strings,
    "passes": _pass_options,
    "decompositions": _strings,
    "custom_passes": _custom_passes,
    "disable": _strings,
    "fuel": _fuel,
    "on_failure": _one_of(get_args(OnFailure)),
    "verify": _boolean,
    "freezing": _boolean,
    "freezing_discard": _boolean,
    "cache": _boolean,
}

_ambient: ContextVar[tuple[Mapping[str, object], ...]] = ContextVar("ctk_config", default=())


@contextlib.contextmanager
def patch(changes: Mapping[str, object] | None = None, **more: object) -> Generator[None]:
    """Change options for the compiles that start inside the `with` block.

    Args:
        changes: New values by option, as `Config.patch` takes them.
        more: The same, for names without dots.

    Raises:
        ConfigError: An option is unknown or its value is not allowed.
    """
    merged = {**(changes or {}), **more}
    Config().patch(merged)
    token = _ambient.set((*_ambient.get(), merged))
    try:
        yield
    finally:
        _ambient.reset(token)


def resolve(config: "Config | Mapping[str, object] | None") -> Config:
    """Return the Config of a call: a Config as it is, a mapping as a patch of the ambient one."""
    if isinstance(config, Config):
        return config
    from ctk.compiler.options.environment import read_environment

    environment = read_environment()
    resolved = Config()
    for changes in (partition_changes(), environment.config_changes(), *_ambient.get(), config):
        resolved = resolved.patch(changes)
    if environment.disable and resolved.disable != environment.disable:
        # A repro disables all passes but the guilty one; its proof disables that one as well.
        resolved = resolved.patch(disable=(*resolved.disable, *environment.disable))
    return resolved
