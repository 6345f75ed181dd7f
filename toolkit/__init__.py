"""ctk's toolkit: watches compiles, judges them, finds the culprit and reduces the case.

Importing it costs nothing: torch and the rest are imported when a name is first used.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from toolkit.hooks import debug_compile, install

__all__ = ["debug_compile", "install"]


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from toolkit import hooks

    return getattr(hooks, name)
