"""Faults of a running kernel: a position that it read is outside of its dimension.

The kernel never touches memory there. It records the failed check and the position, skips the rest
of the iteration, and returns the number of the check (0: no fault). `runtime/c_kernels.py` raises
the error. With `sanitize=("address",)` each load and store is checked
against the size of its buffer as well.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from ctk.compiler.runtime.c_kernels import Check

FAULT_TYPE = "typedef struct { int64_t check, index, size; } fault_t;"

NOTE_FAULT = """\
static __attribute__((noinline, cold)) bool note_fault(fault_t* fault, int64_t check,
                                                       int64_t index, int64_t size) {
    int64_t none = 0;
    if (__atomic_compare_exchange_n(&fault->check, &none, check, 0, 0, 0)) {
        fault->index = index;
        fault->size = size;
    }
    return false;
}

static _Thread_local fault_t last_fault;

void read_last_fault(int64_t* fault) {
    fault[0] = last_fault.check;
    fault[1] = last_fault.index;
    fault[2] = last_fault.size;
}

static inline int64_t finish(const fault_t* fault) {
    last_fault = *fault;
    return fault->check;
}
"""


@dataclass(slots=True)
class Faults:
    """The checks of one kernel, numbered from 1; `limits` is empty if accesses are not checked."""

    limits: Mapping[str, str] = field(default_factory=dict[str, str])
    checks: list[Check] = field(default_factory=list[Check])
    node: str = ""

    def position(self, name: str, size: str, *, in_loop: bool) -> str:
        """Return the line that leaves an iteration whose computed position is out of range."""
        note = self._note(Check("position", node=self.node), name, size)
        leave = "continue" if in_loop else "return finish(&fault)"
        return f"if ((uint64_t){name} >= (uint64_t)({size})) {{ {note}; {leave}; }}"

    def guard(self, access: Literal["load", "store"], buffer: str, index: str) -> str:
        """Return the condition under which an access is made; empty if it always is."""
        limit = self.limits.get(buffer)
        if limit is None:
            return ""
        note = self._note(Check(access, buffer, self.node), index, limit)
        return f"((uint64_t)({index}) < (uint64_t)({limit}) || {note})"

    def _note(self, check: Check, index: str, size: str) -> str:
        self.checks.append(check)
        return f"note_fault(&fault, {len(self.checks)}, {index}, {size})"
