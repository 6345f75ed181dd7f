"""Resolve the user's own passes: `Config.custom_passes` entries to runnable passes with names."""

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import entry_points
from typing import Literal, cast

from ctk.compiler.errors import ConfigError, nearest
from ctk.compiler.observe import Numerics
from ctk.compiler.references import load
from ctk.compiler.rewriting.base import Pass
from ctk.compiler.rewriting.rewriter import Rewriter

ENTRY_POINT_GROUP = "ctk.passes"


@dataclass(frozen=True, slots=True)
class OpaquePass:
    """A plain function of a whole GraphModule or Graph. Its rewrites are read off its effect."""

    name: str
    function: Callable[..., object]
    takes: Literal["module", "graph"] = "module"
    numerics: Numerics = "reassociates"


def resolve_pass(entry: object) -> Pass | OpaquePass:
    """Return the pass that an entry of `Config.custom_passes` stands for.

    Cases: 1. a Pass; 2. a function of a `Rewriter` (annotated so or called `rewriter`); 3. a
    function of a `Graph` (annotated so or called `graph`) ; 4. any other function: of a
    GraphModule; 5. a string: `module:function`, `path/to/file.py:function` or an entry point of
    group `ctk.passes`.

    Raises:
        ConfigError: The string cannot be resolved; says what was tried.
    """
    if isinstance(entry, str):
        return resolve_pass(load(entry) if ":" in entry else _load_entry_point(entry))
    if isinstance(entry, (Pass, OpaquePass)):
        return entry
    if not callable(entry):
        raise ConfigError(f"custom pass {entry!r} is neither a Pass nor callable")
    name = getattr(entry, "__name__", type(entry).__name__)
    takes = _first_parameter(entry)
    if takes == "rewriter":
        return Pass(name, cast("Callable[[Rewriter], None]", entry), numerics="reassociates")
    return OpaquePass(name, entry, "graph" if takes == "graph" else "module")


_KINDS = {"Rewriter": "rewriter", "Graph": "graph", "GraphModule": "module"}
"""What a parameter's annotation says that the pass takes; it wins over the parameter's name."""


def _first_parameter(function: Callable[..., object]) -> str:
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):
        return "module"
    if not parameters:
        raise ConfigError(f"custom pass {function!r} takes no argument; it must take a graph")
    first = parameters[0]
    if first.annotation is not inspect.Parameter.empty:
        annotation = first.annotation
        text = annotation if isinstance(annotation, str) else getattr(annotation, "__name__", "")
        return _KINDS.get(text.strip("'\"").rpartition(".")[2], "module")
    return {"rewriter": "rewriter", "graph": "graph", "g": "graph"}.get(first.name, "module")


def _load_entry_point(name: str) -> object:
    available = {point.name: point for point in entry_points(group=ENTRY_POINT_GROUP)}
    if name not in available:
        known = ", ".join(sorted(available)) or "none installed"
        raise ConfigError(
            f"custom pass {name!r} is not an entry point of {ENTRY_POINT_GROUP} ({known})"
            f"{nearest(name, available)}; or write module:function or file.py:function"
        )
    return available[name].load()
