"""The loop IR as text, as `ctk show --kernels` prints it, and a program in one line."""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from torch import SymInt

from ctk.compiler.fx.properties import is_view
from ctk.compiler.fx.types import value_of
from ctk.compiler.lowering.ir import (
    Buffer,
    Const,
    Guarded,
    Kernel,
    LibraryCall,
    Load,
    Local,
    Op,
    Position,
    Program,
    Reduce,
    Statement,
    Store,
    Value,
    indirect_value,
)
from ctk.compiler.lowering.walk import indirect, operands, origins, values_of, walk
from ctk.compiler.sizes.index import Atom, Division, Index, Indirect, term_text
from ctk.compiler.torch_compat.fx import operators

_INFIX = {"add": "+", "sub": "-", "mul": "*", "div": "/", "eq": "==", "ne": "!=", "lt": "<",
          "le": "<=", "gt": ">", "ge": ">="}  # fmt: skip


def program_text(program: Program) -> str:
    """Return a program: its buffers, then its steps."""
    lines = [buffer_text(buffer) for buffer in program.buffers.values()]
    for step in program.steps:
        lines += ["", kernel_text(step) if isinstance(step, Kernel) else _library(step)]
    return "\n".join(lines)


def summary(program: Program) -> str:
    """Return `3 kernels, 2 library calls: addmm (it has no lowering), sort (...)`."""
    kernels = sum(isinstance(step, Kernel) for step in program.steps)
    calls = [step for step in program.steps if isinstance(step, LibraryCall) and _computes(step)]
    line = f"{_count(kernels, 'kernel')}, {_count(len(calls), 'library call')}"
    if not calls:
        return line
    kinds = Counter(map(_call_text, calls))
    texts = (text if count == 1 else f"{count} x {text}" for text, count in kinds.items())
    return f"{line}: {', '.join(texts)}"


def buffer_text(buffer: Buffer) -> str:
    """Return a buffer in one line: `buffer x: float32[4, s0] strides [s0, 1] (input, cpu)`."""
    dtype = str(buffer.dtype).removeprefix("torch.")
    shape, strides = _list(buffer.shape), _list(buffer.strides)
    where = f"({buffer.role}, {buffer.device})"
    return f"buffer {buffer.name}: {dtype}{shape} strides {strides} {where}"


def _library(call: LibraryCall) -> str:
    return f"library {call.node.format_node()}  # {call.why}"


def kernel_text(kernel: Kernel) -> str:
    """Return a kernel: its loops and statements, each with its node of origin."""
    loops = ", ".join(f"{each.name} < {each.size}" for each in kernel.outer)
    lines = [f"kernel {kernel.name}({loops}) of [{', '.join(kernel.nodes)}]:"]
    for sweep in kernel.sweeps:
        for depth, loop in enumerate(sweep.inner):
            lines.append(f"{'  ' * (depth + 1)}for {loop.name} < {loop.size}:")
        indent = "  " * (len(sweep.inner) + 1)
        lines += [
            f"{indent}{line}" for statement in sweep.statements for line in _statement(statement)
        ]
    return "\n".join(lines)


@dataclass(frozen=True, slots=True)
class _Expressions:
    """Writes values as expressions.

    Attributes:
        names: The names of the values with a line of their own, by id.
    """

    names: Mapping[int, str]

    def value(self, value: Value) -> str:
        return self.names.get(id(value)) or self.definition(value)

    def definition(self, value: Value) -> str:
        if isinstance(value, Const):
            return str(value.value)
        if isinstance(value, Load):
            return f"{value.buffer}[{self.index(value.index)}]"
        if isinstance(value, Position):
            text = self.index(value.index)
            return f"({text})" if " " in text else text
        if isinstance(value, Local):
            return value.name
        if isinstance(value, Guarded):
            parts = map(self.value, (value.value, value.condition, value.other))
            return "({} if {} else {})".format(*parts)
        return self._op(value)

    def index(self, index: Index) -> str:
        """Return an index expression; positions that the kernel reads stand in brackets."""
        if not indirect(index):
            return str(index)
        return " + ".join(term_text(*term, self._atom) for term in index.terms)

    def _atom(self, atom: Atom) -> str:
        if isinstance(atom, Indirect):
            return f"[{self.value(indirect_value(atom))}]"
        if isinstance(atom, Division):
            return f"(({self.index(atom.value)}) {atom.sign} ({self.index(atom.divisor)}))"
        return str(atom)

    def _op(self, op: Op) -> str:
        args = [self.value(arg) for arg in op.args]
        if op.name == "cast":
            return f"{str(op.dtype).removeprefix('torch.')}({args[0]})"
        if op.name in _INFIX:
            return f"({args[0]} {_INFIX[op.name]} {args[1]})"
        return f"{op.name}({', '.join(args)})"


def _statement(statement: Statement) -> Iterator[str]:
    """Yield a statement; a computed value that it uses more than once is a line before it."""
    values = walk(statement)
    used = [each for value in values for each in operands(value)]
    uses = Counter(map(id, [*used, *values_of(statement)]))
    names: dict[int, str] = {}
    write = _Expressions(names)
    for value in values:
        if isinstance(value, (Op, Guarded)) and uses[id(value)] > 1:
            yield f"%{len(names)} = {write.definition(value)}"
            names[id(value)] = f"%{len(names)}"
    text = write.value(statement.value)
    if isinstance(statement, Store):
        sign = "=" if statement.mode == "set" else f"{statement.mode}="
        guard = f" if {write.value(statement.guard)}" if statement.guard is not None else ""
        text = f"{statement.buffer}[{write.index(statement.index)}] {sign} {text}{guard}"
    elif isinstance(statement, Reduce):
        text = f"{', '.join(statement.names)} = {statement.kind}({text})"
    else:
        text = f"{statement.name} = scan_{statement.kind}({text})"
    yield f"{text}  # {', '.join(origins(statement))}"


def _computes(call: LibraryCall) -> bool:
    is_operator = operators.kind_of(call.node.target) in ("overload", "packet")
    is_number = isinstance(value_of(call.node), (int, SymInt))
    return is_operator and not is_view(call.node) and not is_number


def _call_text(call: LibraryCall) -> str:
    name = operators.qualified_name_of(call.node.target).partition("::")[2].removesuffix(".default")
    return f"{name} ({call.why})" if call.why else name


def _count(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def _list(sizes: tuple[Index, ...]) -> str:
    return f"[{', '.join(map(str, sizes))}]"
