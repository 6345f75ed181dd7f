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
    return _is_users_file(module) is True and not is_foreign(module.__name__)


def is_of_package(module: str | None) -> bool:
    """Return whether a module is foreign, or a file of an installed package.

    The global names of its definitions are state of the process, as the monitor of a progress bar.
    """
    return is_foreign(module) or _is_users_file(sys.modules.get(module or "")) is False


def _is_users_file(module: ModuleType | None) -> bool | None:
    """Return whether the file of a module is not installed; None if it has no file."""
    parts = Path(getattr(module, "__file__", None) or "").parts
    return {"site-packages", "dist-packages"}.isdisjoint(parts) if parts else None


def is_raised_by_statement(trace: TracebackType | None) -> bool:
    """Return whether a `raise` of the user's own code raised: no operator, and no builtin."""
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    if trace is None or is_foreign(trace.tb_frame.f_globals.get("__name__")):
        return False
    return trace.tb_frame.f_code.co_code[trace.tb_lasti] == opmap["RAISE_VARARGS"]
