"""Print values of the loop IR as C, each in the outermost loop in which it can be computed.

    for (int64_t i0 = 0; i0 < 32; ++i0) {
        const float scale = rsqrt_f32(m2 / 768 + 1e-05f);     // depends on i0 only
        for (int64_t r0 = 0; r0 < 768; ++r0) {
            out[i0*768 + r0] = (x[i0*768 + r0] - mean) * scale;

A value that is used once, in its own loop, is part of the expression that uses it; others get a
name. Values with equal numbers are one (`walk.Numbers`). A load of memory that the kernel writes
stays in its loop, and is repeated after each store there.
"""

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import torch

from ctk.compiler.codegen.c.faults import Faults
from ctk.compiler.codegen.c.masks import is_mask
from ctk.compiler.codegen.c.operations import operation_code, without_rounding
from ctk.compiler.codegen.c.types import C_TYPES, Names, grouped, index_code, literal
from ctk.compiler.lowering.bounds import bounds_of
from ctk.compiler.lowering.ir import (
    Const,
    Guarded,
    Load,
    Local,
    Op,
    Position,
    Statement,
    Value,
    indirect_value,
)
from ctk.compiler.lowering.walk import Numbers, operands, values_of, walk
from ctk.compiler.sizes.index import Index, Indirect, Symbol, Var

_WORK = re.compile(r"\[|\w\(|\?")
"""A load, a call or a choice in an expression."""

_LONG = 90
"""Expressions longer than this many letters get a name."""


@dataclass(slots=True)
class Block:
    """Lines of C between braces, and the values known in them.

    Attributes:
        lazy: Runs under a condition: nothing in it may be computed further out.
        places: C code for loop variables that this block's loop counts.
    """

    parent: "Block | None" = None
    lazy: bool = False
    is_loop: bool = False
    lines: list[str] = field(default_factory=list[str])
    names: dict[int, str] = field(default_factory=dict[int, str])
    places: dict[Var, str] = field(default_factory=dict[Var, str])
    locals: dict[str, str] = field(default_factory=dict[str, str])

    @property
    def depth(self) -> int:
        return 0 if self.parent is None else self.parent.depth + 1

    def chain(self) -> list["Block"]:
        """Return this block and those around it, the innermost first."""
        return [self] if self.parent is None else [self, *self.parent.chain()]


@dataclass(frozen=True, slots=True)
class Code:
    """A C expression.

    Attributes:
        depth: Of the block that it belongs to.
        free: Whether it costs nothing.
        origins: The nodes whose values it computes, less those of the names in it.
    """

    text: str
    depth: int
    free: bool = False
    origins: tuple[str, ...] = ()


@dataclass(slots=True)
class Values:
    """The printer of the values of one kernel, into the open block."""

    names: Names
    pointers: Mapping[str, str]
    symbols: Mapping[Symbol, str]
    written: frozenset[str]
    faults: Faults
    block: Block = field(default_factory=Block)
    numbers: Numbers = field(default_factory=Numbers)
    _uses: Counter[int] = field(default_factory=Counter[int])
    _touched: dict[int, frozenset[str]] = field(default_factory=dict[int, frozenset[str]])

    def count(self, statements: tuple[Statement, ...]) -> None:
        """Count how often each value of some statements is used: those used twice get names."""
        seen: set[int] = set()
        self._uses = Counter()
        for statement in statements:
            self._uses.update(self.numbers.of(each) for each in values_of(statement))
            for value in walk(statement):
                if self.numbers.of(value) not in seen:
                    seen.add(self.numbers.of(value))
                    self._uses.update(map(self.numbers.of, operands(value)))

    def text(self, value: Value) -> str:
        """Return the code of a value for use in the block that lines go to now."""
        return self.code(value).text

    def code(self, value: Value) -> Code:
        """Return the code of a value for use in the block that lines go to now."""
        return self._hoisted(value, self.block.depth)

    def named(self, value: Value) -> str:
        """Return the code of a value as a name or a number, so that it can stand twice."""
        code = self._hoisted(value, self.block.depth)
        return code.text if code.free else self._name(value, code).text

    def index(self, index: Index) -> str:
        """Return the code of an index expression."""
        return self._index(index).text

    def address(self, buffer: str, index: Index, places: Mapping[Var, str]) -> str:
        """Return the code of an element's address where loop variables have these places."""
        outside = self.block
        self.block = Block(outside, places=dict(places))
        code = f"&{self.pointers[buffer]}[{self.index(index)}]"
        self.block = outside
        return code

    def block_of(self, index: Index, inside: Var) -> Block:
        """Return the outermost block in which an index is known but for one loop variable."""
        wanted = {atom for atom in index.atoms if isinstance(atom, Var) and atom != inside}
        return next(
            block
            for block in self.block.chain()
            if block.parent is None or wanted & block.places.keys()
        )

    def known(self) -> frozenset[int]:
        """Return the numbers of the values that have a name in the open blocks."""
        return frozenset(number for block in self.block.chain() for number in block.names)

    def stored(self, buffer: str) -> None:
        """Forget the loads from a buffer that has just been written."""
        for block in self.block.chain():
            for number in [n for n in block.names if buffer in self._touched.get(n, ())]:
                del block.names[number]

    def _hoisted(self, value: Value, depth: int) -> Code:
        """Return a value's code; computed in its own block if that is further out than `depth`."""
        code = self._code(value)
        if code.depth < depth and not code.free:
            return self._name(value, code)
        return code

    def _code(self, value: Value) -> Code:
        if isinstance(value, Const):
            return Code(literal(value), 0, free=True)
        number = self.numbers.of(value)
        for block in self.block.chain():
            if number in block.names:
                return Code(block.names[number], block.depth, free=True)
        code, least = self._made(value), self._least_depth()
        if not code.free and code.depth < least:
            code = replace(code, depth=least)
        self._touched[number] = self._touches(value)
        if code.free:
            return code
        if self._uses[number] > 1 or len(code.text) > _LONG:
            return self._name(value, code)
        return code

    def _made(self, value: Value) -> Code:
        if isinstance(value, Local):
            return self._local(value)
        if isinstance(value, Position):
            code = self._index(value.index)
            cast = "" if C_TYPES[value.dtype] == "int64_t" else f"({C_TYPES[value.dtype]})"
            text = f"{cast}{grouped(code.text)}" if cast else code.text
            return Code(text, code.depth, free=True)
        if isinstance(value, Load):
            return self._load(value)
        if isinstance(value, Guarded):
            return self._guarded(value)
        assert isinstance(value, Op)
        value = without_rounding(value)
        parts = [self._code(arg) for arg in value.args]
        depth = max((part.depth for part in parts), default=0)
        parts = [
            self._name(each, part) if _needs_name(value, part, depth) else part
            for each, part in zip(value.args, parts, strict=True)
        ]
        code = operation_code(value, [part.text for part in parts])
        return Code(code, depth, origins=_origins(*parts, last=value.origin))

    def _local(self, value: Local) -> Code:
        for block in self.block.chain():
            if value.name in block.locals:
                return Code(block.locals[value.name], block.depth, free=True)
        raise AssertionError(f"{value.name} is read before it is computed")

    def _load(self, load: Load) -> Code:
        code = self._index(load.index)
        depth = self.block.depth if load.buffer in self.written else code.depth
        text = f"{self.pointers[load.buffer]}[{code.text}]"
        text = f"({text} != 0)" if load.dtype == torch.bool else text
        guard = self.faults.guard("load", load.buffer, code.text)
        return Code(f"{guard} ? {text} : 0" if guard else text, depth)

    def _guarded(self, value: Guarded) -> Code:
        codes = self.code(value.condition), self.code(value.other)
        lazy = Block(self.block, lazy=True)
        self.block = lazy
        codes = (*codes, self.code(value.value))
        condition, other, inner = (code.text for code in codes)
        assert lazy.parent is not None
        self.block = lazy.parent
        if not lazy.lines:
            code = f"{grouped(condition)} ? {grouped(inner)} : {grouped(other)}"
            return Code(code, self.block.depth, origins=_origins(*codes, last=value.origin))
        name = self.names.new("chosen")
        self.block.lines += [
            f"{C_TYPES[value.dtype]} {name} = {other};",
            f"if ({condition}) {{",
            *(f"    {line}" for line in lazy.lines),
            f"    {name} = {inner};",
            "}",
        ]
        return Code(name, self.block.depth, free=True)

    def _index(self, index: Index) -> Code:
        names: dict[object, str] = {**self.symbols}
        depth = 0
        wanted = {atom for atom in index.atoms if isinstance(atom, Var)}
        for block in self.block.chain():
            found = wanted & block.places.keys()
            names.update((each, block.places[each]) for each in found)
            depth = max(depth, block.depth if found else 0)
            wanted -= found
        assert not wanted, f"no loop over {', '.join(map(str, wanted))} is open"
        for atom in index.atoms:
            if isinstance(atom, Indirect):
                code = self._position(atom)
                names[atom] = code.text
                depth = max(depth, code.depth)
        return Code(index_code(index, names), depth, free=True)

    def _position(self, atom: Indirect) -> Code:
        """Return a position that the kernel computes; one out of range is never used."""
        value = indirect_value(atom)
        number = self.numbers.of(value)
        key = -1 - number
        for block in self.block.chain():
            if key in block.names:
                return Code(block.names[key], block.depth, free=True)
        code = self._code(value)
        home = self._block_at(max(code.depth, self._least_depth()))
        name = self.names.new("at")
        home.names[key] = name
        self._touched[key] = self._touches(value)
        low, high = bounds_of(value)
        kind = "const volatile" if is_mask(value) else "const"
        home.lines.append(f"{kind} int64_t {name} = {code.text};")
        if low < 0 or high >= (atom.size.number or 0):
            in_loop = any(block.is_loop for block in home.chain())
            size = self.index(atom.size)
            home.lines.append(self.faults.position(name, size, in_loop=in_loop))
        return Code(name, home.depth, free=True)

    def _name(self, value: Value, code: Code) -> Code:
        home = self._block_at(code.depth)
        name = self.names.new("v")
        home.names[self.numbers.of(value)] = name
        line = f"const {C_TYPES[value.dtype]} {name} = {code.text};"
        home.lines.append(with_origins(line, code.origins))
        return Code(name, code.depth, free=True)

    def _block_at(self, depth: int) -> Block:
        return next(block for block in self.block.chain() if block.depth == depth)

    def _least_depth(self) -> int:
        return max((block.depth for block in self.block.chain() if block.lazy), default=0)

    def _touches(self, value: Value) -> frozenset[str]:
        found = {value.buffer} & self.written if isinstance(value, Load) else frozenset[str]()
        for operand in operands(value):
            number = self.numbers.of(operand)
            if number not in self._touched:
                self._touched[number] = self._touches(operand)
            found = found | self._touched[number]
        return frozenset(found)


def with_origins(line: str, origins: tuple[str, ...]) -> str:
    """Return a line with the names of its nodes as a comment."""
    return f"{line}  // {', '.join(origins)}" if origins else line


def _origins(*codes: Code, last: str) -> tuple[str, ...]:
    origins = dict.fromkeys(name for code in codes for name in code.origins)
    return (*(name for name in origins if name != last), *([last] if last else ()))


def _needs_name(op: Op, part: Code, depth: int) -> bool:
    """Return whether an operand is computed before the operation.

    A value of an outer loop is; and so is an operand of `where` that loads, calls or chooses: C
    would do so only where it is chosen, and a loop with such a branch cannot be vectorised.
    """
    if part.free:
        return False
    return part.depth != depth or (op.name == "where" and bool(_WORK.search(part.text)))
