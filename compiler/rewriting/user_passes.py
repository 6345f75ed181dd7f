"""Resolve the user's own passes: `Config.custom_passes` entries to runnable passes with names."""

from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import entry_points
from typing import get_args

from ctk.compiler.errors import ConfigError, nearest
from ctk.compiler.observe import Numerics
from ctk.compiler.rewriting.base import Pass
from ctk.compiler.usercode.pass_argument import Takes, argument_kind
from ctk.compiler.usercode.references import load

ENTRY_POINT_GROUP = "ctk.passes"


@dataclass(frozen=True, slots=True)
class FunctionPass:
    """A user's plain function as a pass.

    Attributes:
        takes: Kind of its argument. A function of a `Rewriter` makes rewrites; the rewrites of a
            function of a `GraphModule` or `Graph` are read off its effect (`effect_split.py`).
        numerics: The function's attribute `numerics`; without one the effect on values is unknown,
            so it counts as reassociating.
    """

    name: str
    function: Callable[..., object]
    takes: Takes = "module"
    numerics: Numerics = "reassociates"


def resolve_pass(entry: object) -> Pass | FunctionPass:
    """Return the pass of an entry of `Config.custom_passes`.

    Cases: 1. a Pass, or a subclass of Pass; 2. a function with a parameter annotated `Rewriter` or
    called `rewriter`; 3. likewise `Graph` or `graph`; 4. any other function, which takes a
    GraphModule; 5. a string that names one of these: `module:name`, `path/to/file.py:name` or an
    entry point of group `ctk.passes`.

    Raises:
        ConfigError: The entry is not a pass, or the string cannot be resolved.
    """
    if isinstance(entry, str):
        return resolve_pass(load(entry) if ":" in entry else _load_entry_point(entry))
    if isinstance(entry, type) and issubclass(entry, Pass):
        entry = _instantiate(entry)
    if isinstance(entry, Pass) and not hasattr(entry, "name"):
        raise ConfigError(
            f'custom pass {entry!r} has no name; write in its class: name = "my_pass"'
        )
    if isinstance(entry, (Pass, FunctionPass)):
        return _require_numerics(entry)
    if not callable(entry):
        raise ConfigError(f"custom pass {entry!r} is neither a Pass nor callable")
    name = getattr(entry, "__name__", type(entry).__name__)
    numerics: Numerics = getattr(entry, "numerics", "reassociates")
    return _require_numerics(FunctionPass(name, entry, argument_kind(entry), numerics))


def _require_numerics(entry: Pass | FunctionPass) -> Pass | FunctionPass:
    known = get_args(Numerics)
    if entry.numerics not in known:
        raise ConfigError(
            f"custom pass {entry.name} declares numerics {entry.numerics!r}, which is not one of "
            f"{', '.join(known)}{nearest(str(entry.numerics), known)}"
        )
    return entry


def _instantiate(kind: type[Pass]) -> Pass:
    try:
        return kind()
    except Exception as error:
        raise ConfigError(
            f"custom pass {kind.__name__} cannot be instantiated: {type(error).__name__}: {error}\n"
            "  a pass has a method run(self, rewriter), and each of its options has a default"
        ) from error


def _load_entry_point(name: str) -> object:
    available = {point.name: point for point in entry_points(group=ENTRY_POINT_GROUP)}
    if name not in available:
        known = ", ".join(sorted(available)) or "none installed"
        raise ConfigError(
            f"custom pass {name!r} is not an entry point of {ENTRY_POINT_GROUP} ({known})"
            f"{nearest(name, available)}; or write module:function or file.py:function"
        )
    return available[name].load()
