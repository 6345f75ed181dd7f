"""The accumulators of a sweep that reduces, as variables of C: one total for each result.

`mean_m2` has a mean, a sum of squares and, where blocks or chunks are combined, a count.
"""

from collections.abc import Mapping, Sequence

from ctk.compiler.codegen.c.accumulators import (
    arg_update,
    combine_squares,
    identity,
    is_arg,
    update,
    wide_type,
)
from ctk.compiler.codegen.c.sweeps import SweepPrinter
from ctk.compiler.codegen.c.types import C_TYPES
from ctk.compiler.lowering.ir import Dtype, Reduce


class Totals:
    """Prints accumulators: how they begin, how parts are added, how later sweeps read them."""

    def __init__(self, printer: SweepPrinter, reduces: Sequence[Reduce], *, single: bool) -> None:
        self.names: dict[str, str] = {}
        self.counts: dict[str, str] = {}
        self._printer = printer
        self._values = printer.values
        self._reduces = reduces
        self._single = single

    def variable(self, name: str) -> str:
        """Return the accumulator of a result, in the current column."""
        return self._printer.variable(self.names[name])

    def declare(self) -> None:
        """Print the declarations."""
        lines, names = self._values.block.lines, self._values.names
        for reduce in self._reduces:
            lines.append(f"// {reduce.origin}")
            for position, name in enumerate(reduce.names):
                self.names.setdefault(name, names.new(name))
                begin = identity(reduce.kind, reduce.value.dtype)
                if is_arg(reduce) and position == 1:
                    begin = "-1"
                self._printer.declare(self.type_of(reduce, position), self.names[name], begin)
            if reduce.kind == "mean_m2" and not self._single:
                first = reduce.names[0]
                self.counts.setdefault(first, names.new("count"))
                lines.append(f"int64_t {self.counts[first]} = 0;")

    def type_of(self, reduce: Reduce, position: int) -> str:
        """Return the C type of an accumulator."""
        if is_arg(reduce) and position == 1:
            return "int64_t"
        return C_TYPES[reduce.value.dtype] if self._single else wide_type(reduce)

    def combine(self, reduce: Reduce, parts: list[str], count: str) -> None:
        """Print the combination of the accumulators with those of a chunk or a block."""
        lines = self._values.block.lines
        totals = [self.variable(name) for name in reduce.names]
        if reduce.kind == "mean_m2":
            seen = self.counts[reduce.names[0]]
            both = (totals[0], totals[1], seen), (parts[0], parts[1], count)
            with self._printer.block(f"if ({count} > 0) {{") as inner:
                inner.lines += combine_squares(reduce, *both)
        elif is_arg(reduce):
            lines += arg_update(reduce, (totals[0], totals[1]), (parts[0], parts[1]))
        else:
            lines.append(update(reduce.kind, reduce.value.dtype, totals[0], parts[0]))

    def add_counts(self, counts: Mapping[str, str]) -> None:
        """Print the additions to the counts, by first result."""
        for name, count in counts.items():
            self._values.block.lines.append(f"{self.counts[name]} += {count};")

    def bind(self) -> None:
        """Bind the results, so that later sweeps read the accumulators."""
        for reduce in self._reduces:
            for position, (name, dtype) in enumerate(zip(reduce.names, reduce.dtypes, strict=True)):
                self._printer.bind(
                    name, self._result(reduce, position, name, dtype), self._values.block
                )

    def _result(self, reduce: Reduce, position: int, name: str, dtype: Dtype) -> str:
        total = self.variable(name)
        if is_arg(reduce) and position == 1:
            return f"({total} < 0 ? 0 : {total})"
        if self._single or wide_type(reduce) == C_TYPES[dtype]:
            return total
        code = f"({C_TYPES[dtype]}){total}"
        if self._printer.tile is not None:
            return f"({code})"
        result = self._values.names.new(f"{self.names[name]}_all")
        self._values.block.lines.append(f"const {C_TYPES[dtype]} {result} = {code};")
        return result
