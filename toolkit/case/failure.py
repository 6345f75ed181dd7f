"""The signature of a failure: two failures with matching signatures are the same."""

from dataclasses import dataclass
from typing import Literal, get_args

from ctk.toolkit.case.formats.checked_types import Line
from ctk.toolkit.case.formats.schema import document

FailureKind = Literal[
    "compile-error", "runtime-error", "missing-error", "other-error",
    "signal", "exit", "timeout", "memory",
    "accuracy", "nan", "dtype", "shape", "stride", "structure", "alias", "requires-grad", "state",
    "slow", "peak-memory", "slow-compile", "oracle",
]  # fmt: skip
"""`missing-error`: eager raises, the compiled program does not; `other-error`: both raise, and not
the same. `alias`: other results share memory than in eager; `requires-grad`: a result requires a
gradient on one side only; `state`: Python state (a list, an attribute) differs after the call.
`exit` ends the process without an exception (`os._exit`); `memory` is more of it than the limit
of a child, where eager needs less; `nan` is a NaN or Inf pattern that differs; `structure` is
another number or nesting of results. `slow` and `peak-memory`: the compiled call takes `limit`
times eager's time, or memory at its peak; seen only by a measurement. `slow-compile`: the compile
takes `limit` seconds or more, and its time grows faster than its graph. `oracle`: a failure by the
user's own command or function.
"""


FailureOrigin = Literal[
    "dynamo", "export", "runtime", "operator",
    "captured", "pre_grad", "dispatch", "joint", "forward", "backward", "frozen", "lowered",
]  # fmt: skip
"""The origin of a failure: a `Stage` of the pipeline, or code outside of graphs. `dynamo`: capture,
guards, resumption, side effects. `export`: torch.export. `runtime`: the wrappers of compiled
graphs. `operator`: a custom operator.
"""


def _is_stage_place(where: str | None) -> bool:
    return where is not None and where.partition("/")[0] in get_args(FailureOrigin)


@document
@dataclass(frozen=True, slots=True)
class Signature:
    """The identity of a failure.

    Attributes:
        exception: Type name of the exception, for errors.
        where: Raising stage/pass (`joint/fold`), or `module:function` of the innermost frame
            outside ctk, for errors; for `missing-error` the operator that raises in eager.
        signal: Number of the signal that killed the child, for kind `signal`.
        output: Name of the first result that differs (`out0`, `in1`, `grad_in2`): information only,
            because a reduction renumbers results.
        message: First line of the exception, or the measured errors: information only.
        limit: For a measured failure: the ratio to eager that counts as one; for `slow-compile` the
            seconds.
    """

    kind: FailureKind
    exception: Line | None = None
    where: Line | None = None
    signal: int | None = None
    output: Line | None = None
    message: Line = ""
    limit: float | None = None

    @property
    def is_measured(self) -> bool:
        """Whether only a measurement of time or memory shows it."""
        return self.kind in ("slow", "peak-memory", "slow-compile")

    @property
    def is_timed(self) -> bool:
        """Whether it is a time: nothing else may run while it is measured."""
        return self.kind in ("slow", "slow-compile")

    @property
    def is_of_call(self) -> bool:
        """Whether it is the time or memory of a call against eager's: no pass can be blamed."""
        return self.is_measured and self.kind != "slow-compile"

    @property
    def is_deadly(self) -> bool:
        """Whether it makes its process unusable: it ends, stops or loses CUDA."""
        return self.ends_process or self.exception == "AcceleratorError"

    @property
    def breaks_eager(self) -> bool:
        """Whether eager itself breaks CUDA for its process, which cannot continue."""
        return self.kind == "missing-error" and self.is_deadly

    @property
    def ends_process(self) -> bool:
        """Whether it ends or stops the process that shows it."""
        return self.kind in ("signal", "exit", "timeout", "memory")

    @property
    def is_cut_off(self) -> bool:
        """Whether a limit of ctk ended it: under another limit it may behave differently."""
        return self.kind in ("timeout", "memory")

    @property
    def is_numeric(self) -> bool:
        """Whether the results have the right form but wrong values."""
        return self.kind in ("accuracy", "nan")

    def matches(self, other: "Signature") -> bool:
        """Return whether `other` is the same failure; `output` and `message` do not count.

        A place in the pipeline (of an observed compile) and a frame (of an unobserved one) cannot
        be compared, so they match.
        """
        mine = (self.kind, self.exception, self.signal, self.limit)
        if mine != (other.kind, other.exception, other.signal, other.limit):
            return False
        if _is_stage_place(self.where) != _is_stage_place(other.where):
            return True
        return self.where == other.where

    def __str__(self) -> str:
        where, output = self.where and f"in {self.where}", self.output and f"at {self.output}"
        parts = (self.kind, self.exception, where, self.signal and str(self.signal), output)
        head = " ".join(part for part in parts if part)
        return f"{head}: {self.message}" if self.message else head
