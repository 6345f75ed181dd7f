"""ctk: name the guilty pass, rewrite, kernel and node of a wrong compile, with a small repro.

The public face. Importing it costs nothing: torch and the rest load when a name is first used.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ctk.compiler.config import Config, patch
    from ctk.compiler.errors import CtkError
    from ctk.compiler.pipeline import compile_fx
    from ctk.toolkit.watch.hooks import debug_compile, install

__all__ = ["Config", "CtkError", "compile_fx", "debug_compile", "install", "patch"]

_PLACES = {
    "Config": "ctk.compiler.config",
    "CtkError": "ctk.compiler.errors",
    "compile_fx": "ctk.compiler.pipeline",
    "debug_compile": "ctk.toolkit.watch.hooks",
    "install": "ctk.toolkit.watch.hooks",
    "patch": "ctk.compiler.config",
}


def __getattr__(name: str) -> object:
    if name not in _PLACES:
        raise AttributeError(f"module 'ctk' has no attribute {name!r}")
    return getattr(import_module(_PLACES[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
