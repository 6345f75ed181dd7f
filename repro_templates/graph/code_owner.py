"""The owner of code: the user, or torch, numpy, Python and ctk."""

import sys
from opcode import opmap
from pathlib import Path
from types import ModuleType, TracebackType

FOREIGN = frozenset({"torch", "numpy", "ctk", "builtins", *sys.stdlib_module_names})
"""Packages whose objects are not inspected."""


def is_foreign(module: str | None) -> bool:
    """Return whether a module is not the user's: its definitions are not inspected."""
    return (module or "builtins").partition(".")[0] in FOREIGN


def is_users(module: ModuleType) -> bool:
    """Return whether a module is the user's own: a file that is not installed."""
    parts = Path(getattr(module, "__file__", None) or "").parts
    is_installed = not parts or not {"site-packages", "dist-packages"}.isdisjoint(parts)
    return not is_installed and not is_foreign(module.__name__)


def is_raised_by_statement(trace: TracebackType | None) -> bool:
    """Return whether a `raise` of the user's own code raised: no operator, and no builtin."""
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    if trace is None or is_foreign(trace.tb_frame.f_globals.get("__name__")):
        return False
    return trace.tb_frame.f_code.co_code[trace.tb_lasti] == opmap["RAISE_VARARGS"]
