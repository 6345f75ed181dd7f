"""Whose code it is: the user's own, or that of torch, numpy, Python and ctk.

What it does not do: look into anything.
"""

import sys
from opcode import opmap
from pathlib import Path
from types import ModuleType, TracebackType

FOREIGN = frozenset({"torch", "numpy", "ctk", "builtins", *sys.stdlib_module_names})
"""Packages whose objects are not looked into."""


def is_foreign(module: str | None) -> bool:
    """Return whether a module is not the user's: nothing that it defines is looked into."""
    return (module or "builtins").partition(".")[0] in FOREIGN


def is_users(module: ModuleType) -> bool:
    """Return whether a module is one that the user has written: a file that nobody installed."""
    parts = Path(getattr(module, "__file__", None) or "").parts
    is_installed = not parts or not {"site-packages", "dist-packages"}.isdisjoint(parts)
    return not is_installed and not is_foreign(module.__name__)


def is_raised_by_statement(trace: TracebackType | None) -> bool:
    """Return whether a `raise` of the user's own code has raised: no operator, and no builtin."""
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    if trace is None or is_foreign(trace.tb_frame.f_globals.get("__name__")):
        return False
    return trace.tb_frame.f_code.co_code[trace.tb_lasti] == opmap["RAISE_VARARGS"]
