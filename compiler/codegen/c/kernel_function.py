"""A kernel as a C function: its parameters, its checks, and its identity."""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from ctk.compiler.codegen.c.faults import Faults
from ctk.compiler.codegen.c.functions import FUNCTIONS
from ctk.compiler.codegen.c.types import Names, memory_type
from ctk.compiler.codegen.c.values import Values
from ctk.compiler.codegen.numbered_names import number_names
from ctk.compiler.lowering.ir import Buffer
from ctk.compiler.lowering.layout import extent_of
from ctk.compiler.lowering.walk import Arguments
from ctk.compiler.runtime.c_kernels import Check

_TOKEN = re.compile(r"(?P<dropped>//[^\n]*)|\b(?P<word>[A-Za-z_]\w*)")


@dataclass(frozen=True, slots=True)
class KernelCode:
    """A kernel as C.

    Attributes:
        checks: Its checks, numbered from 1; empty if it returns nothing.
        names: The identifiers that are local to this function.
    """

    name: str
    text: str
    checks: tuple[Check, ...]
    names: frozenset[str] = frozenset()

    def canonical(self) -> str:
        """Return the text with its own names numbered, and no comments.

        It is the same for two kernels if they differ in nothing else.
        """
        return number_names(self.text, self.names | {self.name}, _TOKEN)


def values_for(
    arguments: Arguments, buffers: Mapping[str, Buffer], name: str, *, check_bounds: bool
) -> Values:
    """Return the printer of the values of a kernel's function."""
    names = Names(reserved=frozenset((*FUNCTIONS, name)))
    symbols = {symbol: names.new(symbol.name) for symbol in arguments.symbols}
    pointers = {buffer: names.new(buffer) for buffer in arguments.buffers}
    values = Values(names, pointers, symbols, frozenset(arguments.written), Faults())
    if check_bounds:
        values.faults.limits = {
            pointer: values.index(extent_of(buffers[pointer])) for pointer in pointers
        }
    return values


def function_code(
    name: str, values: Values, arguments: Arguments, buffers: Mapping[str, Buffer]
) -> KernelCode:
    """Return the function whose body is the outermost block of `values`."""
    checks, lines = tuple(values.faults.checks), values.block.lines
    if checks:
        lines = ["fault_t fault = {0};", *lines, "return finish(&fault);"]
    parameters = _parameters(values, arguments, buffers)
    head = f"{'int64_t' if checks else 'void'} {name}({parameters}) {{"
    text = "\n".join((head, *(f"    {line}" for line in lines), "}"))
    return KernelCode(name, text, checks, values.names.taken)


def _parameters(values: Values, arguments: Arguments, buffers: Mapping[str, Buffer]) -> str:
    shared = _sharing(arguments.buffers, buffers)
    parts: list[str] = []
    for buffer in arguments.buffers:
        const = "" if buffer in values.written else "const "
        ctype = memory_type(buffers[buffer].dtype)
        restrict = "" if buffer in shared else "restrict "
        parts.append(f"{const}{ctype}* {restrict}{values.pointers[buffer]}")
    parts += [f"int64_t {values.symbols[symbol]}" for symbol in arguments.symbols]
    return ", ".join(parts) or "void"


def _sharing(names: tuple[str, ...], buffers: Mapping[str, Buffer]) -> frozenset[str]:
    """Return the buffers of a kernel that use the same memory as another one of it."""
    roots: dict[str, list[str]] = {}
    for name in names:
        root = name
        while buffers[root].memory:
            root = buffers[root].memory
        roots.setdefault(root, []).append(name)
    return frozenset(name for group in roots.values() if len(group) > 1 for name in group)
