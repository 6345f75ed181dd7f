"""The kind of argument that a user's function takes as a pass."""

import inspect
from collections.abc import Callable, Mapping
from typing import Literal

from ctk.compiler.errors import ConfigError

Takes = Literal["rewriter", "module", "graph"]

_KINDS: Mapping[str, Takes] = {"Rewriter": "rewriter", "Graph": "graph", "GraphModule": "module"}
"""Kind of the argument by its annotation, which takes precedence over its name."""

_NAMES: Mapping[str, Takes] = {"rewriter": "rewriter", "graph": "graph", "g": "graph"}

_GIVEN = (
    inspect.Parameter.POSITIONAL_ONLY,
    inspect.Parameter.POSITIONAL_OR_KEYWORD,
    inspect.Parameter.KEYWORD_ONLY,
)


def argument_kind(function: Callable[..., object]) -> Takes:
    """Return the kind of the first parameter; `module` without a known annotation or name.

    Raises:
        ConfigError: The function takes no argument, or needs several.
    """
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):
        return "module"
    if not parameters:
        raise ConfigError(f"custom pass {function!r} takes no argument; it must take a graph")
    first, *others = parameters
    needed = [
        other.name for other in others if other.kind in _GIVEN and other.default is other.empty
    ]
    if needed:
        raise ConfigError(
            f"custom pass {function!r} needs {', '.join(needed)} besides its first argument; it is "
            "called with one, the graph: bind the others (functools.partial), or give them defaults"
        )
    if first.annotation is not inspect.Parameter.empty:
        annotation = first.annotation
        text = annotation if isinstance(annotation, str) else getattr(annotation, "__name__", "")
        return _KINDS.get(text.strip("'\"").rpartition(".")[2], "module")
    return _NAMES.get(first.name, "module")
