"""What a graph became, in a line: how many kernels, and what the library runs, and why."""

from __future__ import annotations

from collections import Counter

from torch import SymInt

from ctk.compiler.fx.properties import is_view
from ctk.compiler.fx.types import value_of
from ctk.compiler.lowering.ir import Kernel, LibraryCall, Program
from ctk.compiler.torch_compat.fx import operators


def summary(program: Program) -> str:
    """Return `3 kernels, 2 library calls: addmm (there is no lowering of it), sort (...)`.

    Views and arithmetic of sizes are not counted: they compute no tensor.
    """
    kernels = sum(isinstance(step, Kernel) for step in program.steps)
    calls = [step for step in program.steps if isinstance(step, LibraryCall) and _computes(step)]
    line = f"{_counted(kernels, 'kernel')}, {_counted(len(calls), 'library call')}"
    if not calls:
        return line
    kinds = Counter(_text(call) for call in calls)
    told = (text if count == 1 else f"{count} x {text}" for text, count in kinds.items())
    return f"{line}: {', '.join(told)}"


def _computes(call: LibraryCall) -> bool:
    is_operator = operators.kind_of(call.node.target) in ("overload", "packet")
    return (
        is_operator
        and not is_view(call.node)
        and not isinstance(value_of(call.node), (int, SymInt))
    )


def _text(call: LibraryCall) -> str:
    name = operators.qualified_name_of(call.node.target).partition("::")[2].removesuffix(".default")
    return f"{name} ({call.why})" if call.why else name


def _counted(count: int, what: str) -> str:
    return f"{count} {what}" if count == 1 else f"{count} {what}s"
