"""Printed values, and the lines that define their variables."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from ctk.compiler.codegen.triton.layout import Axis


@dataclass(frozen=True, slots=True)
class Printed:
    """A printed value: a variable, or a number."""

    text: str
    axes: frozenset[str] = frozenset()
    buffers: frozenset[str] = frozenset()


@dataclass(slots=True)
class Lines:
    """Lines of code, and the values that their variables hold."""

    lines: list[str] = field(default_factory=list[str])
    known: dict[object, Printed] = field(default_factory=dict[object, Printed])


@dataclass(slots=True)
class BodyCode:
    """The code of a kernel: the lines at its top level, and those of the loop that is open."""

    top: Lines = field(default_factory=Lines)
    loop: Lines | None = None
    looped: Axis | None = None
    _count: int = 0

    def line(self, text: str, axes: frozenset[str], origin: str = "") -> None:
        """Add a line, to the loop if it depends on the loop's axis."""
        self._lines(axes).lines.append(f"{text}  # {origin}" if origin else text)

    def variable(self, text: str, axes: frozenset[str], origin: str = "", *,
                 buffers: frozenset[str] = frozenset(), prefix: str = "v") -> Printed:  # fmt: skip
        """Return a new variable with the value of an expression."""
        name = f"{prefix}{self._count}"
        self._count += 1
        self.line(f"{name} = {text}", axes, origin)
        return Printed(name, axes, buffers)

    def recall(self, key: object) -> Printed | None:
        """Return the value kept under a key, if its variable still holds it."""
        for lines in (self.loop, self.top):
            if lines is not None and key in lines.known:
                return lines.known[key]
        return None

    def keep(self, key: object, shown: Printed) -> Printed:
        """Keep a printed value under a key, as long as its variable exists."""
        self._lines(shown.axes).known[key] = shown
        return shown

    def forget(self, buffer: str) -> None:
        """Forget the values loaded from a buffer, which has been written."""
        for lines in (self.top, self.loop):
            if lines is not None:
                stale = [key for key, shown in lines.known.items() if buffer in shown.buffers]
                for key in stale:
                    del lines.known[key]

    def open_loop(self, axis: Axis) -> None:
        self.looped, self.loop = axis, Lines()

    def close_loop(self, head: str, first: Iterable[str]) -> None:
        """Add the open loop to the top level: its head, some first lines, its own lines."""
        assert self.loop is not None
        self.top.lines += [head, *(f"    {line}" for line in (*first, *self.loop.lines))]
        self.looped = self.loop = None

    def _lines(self, axes: frozenset[str]) -> Lines:
        if self.loop is not None and self.looped is not None and self.looped.name in axes:
            return self.loop
        return self.top


def union(parts: Iterable[Printed]) -> tuple[frozenset[str], frozenset[str]]:
    """Return the axes and the buffers of some values together."""
    each = list(parts)
    axes = frozenset[str]().union(*(part.axes for part in each))
    return axes, frozenset[str]().union(*(part.buffers for part in each))
