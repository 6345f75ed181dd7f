"""Index expressions as Triton code."""

from collections.abc import Callable
from dataclasses import dataclass, field

from ctk.compiler.sizes.index import (
    Atom,
    Extreme,
    Index,
    Indirect,
    Quotient,
    Remainder,
    Symbol,
    Var,
    is_nonnegative,
)


@dataclass(slots=True)
class IndexPrinter:
    """Prints index expressions; quotients and remainders become variables of their own.

    `//` and `%` of Triton are those of C, so values that may be negative are divided by other
    means.
    """

    indirect: Callable[[Indirect], str]
    define: Callable[[str, Index], str]
    symbols: dict[str, str] = field(default_factory=dict[str, str])

    def text(self, index: Index) -> str:
        """Return an index expression as a sum."""
        if not index.terms:
            return "0"
        text = ""
        for monomial, factor in index.terms:
            sign = "-" if factor < 0 else "+"
            parts = [self._atom(atom) for atom in monomial]
            if abs(factor) != 1 or not parts:
                parts.append(str(abs(factor)))
            product = " * ".join(parts)
            if text:
                text += f" {sign} {product}"
            else:
                text = f"-{product}" if sign == "-" else product
        return text

    def _atom(self, atom: Atom) -> str:
        if isinstance(atom, Symbol):
            return self.symbols.get(atom.name, atom.name)
        if isinstance(atom, Var):
            return atom.name
        if isinstance(atom, Indirect):
            return self.indirect(atom)
        if isinstance(atom, Extreme):
            name = "maximum" if atom.kind == "max" else "minimum"
            return f"tl.{name}({self.text(atom.left)}, {self.text(atom.right)})"
        value, divisor = self._factor(atom.value), self._factor(atom.divisor)
        text = f"{value} % {divisor}"
        is_quotient = isinstance(atom, Quotient)
        if not is_nonnegative(atom.value):
            text = f"({text} + {divisor}) % {divisor}"
            text = f"({value} - {text}) // {divisor}" if is_quotient else text
        elif is_quotient:
            text = f"{value} // {divisor}"
        return self.define(text, _of(atom))

    def _factor(self, index: Index) -> str:
        text = self.text(index)
        return f"({text})" if " " in text else text


def _of(atom: Quotient | Remainder) -> Index:
    return Index((((atom,), 1),))
