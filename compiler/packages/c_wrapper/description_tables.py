"""The description of a library in itself: `ctk_package_description`, tables that ctk.c reads."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import torch

from ctk.compiler.packages.c_api import ABI_VERSION
from ctk.compiler.packages.c_wrapper.c_literals import array_text, int_text, size_name, string_text
from ctk.compiler.packages.c_wrapper.c_literals import size_text as text_of_size
from ctk.compiler.packages.c_wrapper.entries import (
    LARGEST,
    CEntry,
    CValue,
    NotInC,
    Weight,
    dtype_code,
)
from ctk.compiler.packages.input_guard import Condition, symbol_name
from ctk.compiler.sizes.index import Index, as_index
from ctk.compiler.sizes.size_guards import symbols_of

_KINDS = {"tensor": "CTK_TENSOR", "int": "CTK_INT"}


def description(
    entries: Sequence[CEntry],
    weights: Sequence[Weight],
    *,
    made_by: str,
    torch_version: str,
    features: Sequence[str],
) -> str:
    """Return the tables.

    Args:
        entries: Their functions are `run_function(number)`, unless they are refused.
        torch_version: Of the operators that the library calls; empty if it calls none.
        features: That the processor needs, as /proc/cpuinfo names them.
    """
    numbers = {weight.name: number for number, weight in enumerate(weights)}
    lines = [
        f"int {run_function(number)}(ctk_call*, const ctk_value*, const ctk_value*, "
        "const int64_t*, ctk_value*);"
        for number, each in enumerate(entries)
        if not each.refusal
    ]
    rows: list[str] = []
    for number, each in enumerate(entries):
        table = _Table(number, each, numbers)
        rows.append(table.row())
        lines += table.lines
    held = "\n    ".join(f"{row}," for row in rows)
    lines.append(f"static const ctk_graph graphs[] = {{\n    {held}\n}};")
    held = "\n    ".join(f"{_weight_row(each)}," for each in weights)
    lines.append(f"static const ctk_weight weights[] = {{\n    {held or '{0}'}\n}};")
    needed = string_text(torch_version) if torch_version else "NULL"
    lines.append(
        "const ctk_description ctk_package_description = {\n"
        f"    {ABI_VERSION}, {len(entries)}, {len(weights)}, {string_text(made_by)}, {needed},\n"
        f"    {string_text(' '.join(features))},\n    graphs, weights,\n}};"
    )
    return "\n\n".join(lines) + "\n"


def run_function(number: int) -> str:
    """Return the name of the function of an entry point, by its place in the library."""
    return f"ctk_run_{number}"


class _Table:
    """The tables of one entry point: `row` is its own, `lines` are the tables that it points to."""

    def __init__(self, number: int, entry: CEntry, weights: Mapping[str, int]) -> None:
        self.name = f"graph_{number}"
        self.function = run_function(number)
        self.entry = entry
        self.weights = weights
        self.lines: list[str] = []
        self.order = {symbol: number for number, symbol in enumerate(self.entry.symbols)}

    def row(self) -> str:
        entry = self.entry
        if entry.refusal:
            refusal = string_text(entry.refusal)
            return f"{{.name = {string_text(entry.name)}, .refusal = {refusal}}}"
        inputs = [self._input(number, each) for number, each in enumerate(entry.inputs)]
        outputs = [self._info(output) for output in entry.outputs]
        symbols = [
            f"{{{string_text(name)}, {int_text(low)}, "
            f"{int_text(LARGEST if high is None else high)}}}"
            for name, (low, high) in entry.symbols.items()
        ]
        guards = [
            f"{{{string_text(str(each))}, {self._guard(number, each)}}}"
            for number, each in enumerate(entry.conditions)
        ]
        used = sorted(
            {self.weights[name] for name in entry.given.values() if isinstance(name, str)}
        )
        tables = (
            ("inputs", "ctk_input", inputs),
            ("outputs", "ctk_info", outputs),
            ("symbols", "ctk_symbol", symbols),
            ("guards", "ctk_guard", guards),
            ("weights", "int32_t", list(map(str, used))),
        )
        fields = [f".name = {string_text(entry.name)}", f".run = {self.function}"]
        for field, kind, rows in tables:
            if not rows:
                continue
            self.lines.append(
                f"static const {kind} {self.name}_{field}[] = {{\n    "
                + "\n    ".join(f"{row}," for row in rows)
                + "\n};"
            )
            fields.append(f".{field} = {self.name}_{field}")
            fields.append(f".{field.removesuffix('s')}_count = {len(rows)}")
        return f"{{{', '.join(fields)}}}"

    def _input(self, number: int, value: CValue) -> str:
        sizes = [self._size(number, d, size) for d, size in enumerate(value.shape)]
        given = [] if value.size is None else [self._size(number, 0, value.size)]
        tables = (f"(const ctk_size[]){{{', '.join(x)}}}" if x else "NULL" for x in (sizes, given))
        return f"{{{self._info(value)}, {', '.join(tables)}}}"

    def _size(self, number: int, dim: int, size: Index) -> str:
        if size.number is not None:
            return f"{{{int_text(size.number)}, -1, NULL}}"
        found = symbol_name(size)
        if found is not None and found in self.order:
            return f"{{-1, {self.order[found]}, NULL}}"
        name = self._function(f"size_{number}_{dim}", [size], text_of_size(size), "int64_t")
        return f"{{-1, -1, {name}}}"

    def _guard(self, number: int, condition: Condition) -> str:
        sides = (condition.left, condition.right)
        result = f" {condition.relation} ".join(f"({text_of_size(side)})" for side in sides)
        return self._function(f"guard_{number}", sides, result, "int")

    def _function(self, what: str, sizes: Sequence[Index], result: str, returns: str) -> str:
        """Define a function of the symbols, and return its name."""
        name = f"{self.name}_{what}"
        known = "\n".join(
            f"    const int64_t {size_name(symbol.name)} = symbols[{self.order[symbol.name]}];"
            for symbol in symbols_of(sizes)
        )
        self.lines.append(
            f"static {returns} {name}(const int64_t* symbols) {{\n{known}\n    return {result};\n}}"
        )
        return name

    def _info(self, value: CValue) -> str:
        dims = map(self._dim, value.shape)
        return _info_row(value.name, _KINDS[value.kind], value.dtype, dims, value.is_written)

    def _dim(self, size: Index) -> str:
        if size.number is not None:
            return _constant_dim(size.number)
        low, high = self.entry.symbols.get(symbol_name(size) or "", (0, None))
        limit = int_text(LARGEST if high is None else high)
        return f"{{-1, {string_text(str(size))}, {int_text(low)}, {limit}}}"


def require_known_sizes(entry: CEntry) -> None:
    """Raise `NotInC` for a size symbol that no input determines."""
    asked = symbols_of(
        size for condition in entry.conditions for size in (condition.left, condition.right)
    )
    unknown = [each.name for each in asked if each.name not in entry.symbols]
    if unknown:
        raise NotInC(f"no input determines the size {unknown[0]}, on which the package depends")
    told = {symbol_name(size) for value in entry.inputs for size in value.shape}
    told |= {symbol_name(value.size) for value in entry.inputs if value.size is not None}
    missing = [name for name in entry.symbols if name not in told]
    if missing:
        raise NotInC(f"no input alone determines the size {missing[0]}")


def _info_row(
    name: str, kind: str, dtype: torch.dtype, dims: Iterable[str], is_written: bool
) -> str:
    rows = list(dims)
    table = f"(const ctk_dim[]){{{', '.join(rows)}}}" if rows else "NULL"
    facts = [string_text(name), kind, dtype_code(dtype), str(len(rows)), str(int(is_written))]
    return f"{{{', '.join([*facts, table])}}}"


def _weight_row(weight: Weight) -> str:
    dims = map(_constant_dim, weight.shape)
    info = _info_row(weight.name, "CTK_TENSOR", weight.dtype, dims, False)
    strides = array_text(list(map(as_index, weight.strides)))
    member = "NULL" if weight.member is None else string_text(weight.member)
    return f"{{{info}, {strides}, {member}, {int_text(weight.offset)}}}"


def _constant_dim(size: int) -> str:
    return f"{{{int_text(size)}, NULL, {int_text(size)}, {int_text(size)}}}"
