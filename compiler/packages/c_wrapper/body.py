"""The body of a C function while it is printed: its lines, and the variables of its values."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Mapping, Sequence

from ctk.compiler.packages.c_wrapper.entries import MAX_RANK, CEntry, NotInC
from ctk.compiler.packages.c_wrapper.operator_calls import tensor_text
from ctk.compiler.packages.c_wrapper.variables import Number, Place, Tensor
from ctk.compiler.runtime.steps import Argument, Call, Ref, Step


class Body:
    """The lines of a function.

    A value has a slot, a number that is reused after the value's last use. Numbers of the graph are
    C variables.

    Attributes:
        places: The variable of each value.
        picked: The steps that pick each part of a value of several parts, by value and position.
    """

    def __init__(self, entry: CEntry, weights: Mapping[str, int]) -> None:
        self.entry = entry
        self.lines: list[str] = []
        self.places: dict[str, Place] = {}
        self.slots = 0
        self.picked = _picks(entry.schedule.steps)
        self._weights = weights
        self._free: list[int] = []
        self._variables = 0
        for name in (*entry.schedule.inputs, *entry.schedule.constants):
            self.places[name] = self._defined(entry.given[name])

    def find(self, ref: Ref) -> Place:
        """Return the variable of a value."""
        return self.places[ref.name]

    def tensor(self, argument: Argument) -> str:
        """Return the address of a tensor."""
        return tensor_text(argument, self.find)

    def new(self, name: str) -> str:
        """Reserve a slot for a tensor, and return its address."""
        slot = self._free.pop() if self._free else self.slots
        self.slots = max(self.slots, slot + 1)
        self.places[name] = Tensor(f"&v[{slot}]", slot)
        return f"&v[{slot}]"

    def drop(self, names: Iterable[str]) -> None:
        """Print that values are needed no more."""
        for name in names:
            place = self.places.get(name)
            if isinstance(place, Tensor) and place.slot is not None:
                self.lines.append(f"DROP({place.text});")
                self._free.append(place.slot)

    def variable(self, name: str, text: str | None, kind: str = "int") -> str:
        """Declare a variable for a number, and return its name; without a text, it is set later."""
        variable = f"number_{self._variables}"
        self._variables += 1
        c_type = "double" if kind == "float" else "int64_t"
        self.lines.append(f"{c_type} {variable} = {text or 0};")
        if name:
            self.places[name] = Number(variable, kind)
        return variable

    def title(self, ref: Ref) -> str:
        """Return the name of a tensor for callers."""
        source = self.entry.given.get(ref.name)
        return self.entry.inputs[source].name if isinstance(source, int) else ref.name

    def _defined(self, source: int | str) -> Place:
        if isinstance(source, str):
            return Tensor(f"&weights[{self._weights[source]}]")
        if self.entry.inputs[source].kind == "tensor":
            return Tensor(f"&inputs[{source}]")
        return Number(f"(*(const int64_t*)inputs[{source}].tensor.data)")


def require_rank(shape: Sequence[object]) -> None:
    """Raise `NotInC` for a shape of more dimensions than ctk.h has."""
    if len(shape) > MAX_RANK:
        raise NotInC(f"a tensor has {len(shape)} dimensions, and ctk.h is for {MAX_RANK}")


def _picks(steps: Sequence[Step]) -> dict[tuple[str, int], list[str]]:
    found: dict[tuple[str, int], list[str]] = {}
    for step in steps:
        if isinstance(step, Call) and step.function is operator.getitem:
            source, position = step.args
            if not isinstance(source, Ref) or not isinstance(position, int) or position < 0:
                raise NotInC(f"{step.name} picks {position!r} of {source!r}")
            found.setdefault((source.name, position), []).append(step.name)
    return found
