"""The memory alive at library calls: no fusion may raise it above the program's peak.

A fusion computes the first of two kernels at the place of the second. So the operands of the first
may live longer, and its results begin later:

    m0 = mm(x0, w); g0 = softmax(m0); d0 = mm(g0, v); m1 = mm(x1, w); g1 = softmax(m1); ...

Fused, `softmax(m0), softmax(m1)` would keep `m0` during the second product, and `g0` until then.
For ordinary programs more operands of less memory are alive then, and the fusion may happen.

Counted are buffers of known size that kernels or the library make, at library calls: values between
these are expected to be fused away. The peak is that of the program as lowered.

Source: `can_fusion_increase_peak_memory` of Inductor's scheduler compares the operands that die in
both kernels with the memory traffic that the fusion saves; it knows no peak.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable
from itertools import accumulate

from ctk.compiler.lowering.groups import Group, Groups
from ctk.compiler.lowering.ir import LibraryCall, Program, Step
from ctk.compiler.lowering.order import step_reads, step_writes
from ctk.compiler.sizes.index import product

_END = 2**62
"""A place behind all steps: results of the program are read there."""


class Peak:
    """The bytes that are alive at the library calls of a program while it is fused."""

    def __init__(self, groups: Groups) -> None:
        self._groups = groups
        self._nbytes: dict[str, int] = {}
        for name, buffer in groups.program.buffers.items():
            numel = product(buffer.shape).number
            if buffer.role in ("kernel", "library") and not buffer.base and numel is not None:
                self._nbytes[name] = numel * buffer.dtype.itemsize
        steps = enumerate(groups.program.steps)
        self._calls = [place for place, step in steps if isinstance(step, LibraryCall)]
        self._lives: dict[str, tuple[int, int]] = {}
        self._alive: list[int] = []
        alive = self._bytes_alive()
        self._limit = max((alive[place] for place in self._calls), default=0)

    def forget(self, *groups: Group) -> None:
        """Forget the lives of the buffers of groups that were fused: each may have changed."""
        for group in groups:
            for name in (*self._of(step_reads, group), *self._of(step_writes, group)):
                self._lives.pop(name, None)
        self._alive.clear()

    def allows(self, first: Group, second: Group, *, stays: bool = False) -> bool:
        """Return whether a fusion keeps the memory at library calls below the peak.

        Args:
            stays: Whether the first kernel is copied, and remains as well.
        """
        start, end = first.place, second.place
        calls = self._calls[bisect_right(self._calls, start) : bisect_left(self._calls, end)]
        if not calls:
            return True
        read = {name: self._last(name, but=first) for name in self._of(step_reads, first)}
        kept = {name: max(last, start) for name, last in read.items() if last < end}
        made = () if stays else self._of(step_writes, first)
        late = {name: last for name in made if (last := self._last(name)) > start}
        if not kept and not late:
            return True
        alive = self._bytes_alive()
        for place in calls:
            more = sum(self._nbytes[name] for name, last in kept.items() if last < place)
            less = sum(self._nbytes[name] for name, last in late.items() if last >= place)
            if more > less and alive[place] + more - less > self._limit:
                return False
        return self._fits_behind(end, [name for name, last in late.items() if last < end])

    def _fits_behind(self, place: int, late: list[str]) -> bool:
        """Return whether results that are read before a place may all be made there."""
        if not late:
            return True
        lives = ((name, self._life(name)) for name in self._nbytes)
        kept = [name for name, (first, last) in lives if first <= place < last]
        return sum(self._nbytes[name] for name in (*kept, *late)) <= self._limit

    def _of(self, names: Callable[[Program, Step], Iterable[str]], group: Group) -> list[str]:
        """Return the counted buffers that a group reads, or writes."""
        found = names(self._groups.program, group.step)
        return [name for name in found if name in self._nbytes]

    def _life(self, name: str) -> tuple[int, int]:
        """Return the places at which a buffer is made and read last."""
        life = self._lives.get(name)
        if life is None:
            life = self._lives[name] = self._first(name), self._last(name)
        return life

    def _first(self, name: str) -> int:
        """Return the place at which a buffer is made."""
        return min((each.place for each in self._groups.writers.get(name, ())), default=_END)

    def _last(self, name: str, but: Group | None = None) -> int:
        """Return the place at which a buffer is read last, by others than a group."""
        if name in self._groups.program.results:
            return _END
        readers = self._groups.readers.get(name, ())
        places = (each.place for each in readers if each is not but)
        return max(places, default=self._first(name))

    def _bytes_alive(self) -> list[int]:
        """Return the bytes that are alive at each place of the program."""
        if not self._alive:
            end = len(self._groups.program.steps)
            change = [0] * (end + 1)
            for name, nbytes in self._nbytes.items():
                first, last = self._life(name)
                if first < end:
                    change[first] += nbytes
                    change[min(last + 1, end)] -= nbytes
            self._alive = list(accumulate(change))
        return self._alive
