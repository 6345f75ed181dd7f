"""The frames that Dynamo has compiled in this process: graph breaks, recompiles, seconds.

Dynamo keeps its metrics of the last 64 compiles, in every version alike. A frame that breaks has
the reason, but not the line; the rest of it is compiled as `torch_dynamo_resume_in_F_at_LINE`.
"""

import importlib
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from ctk.compiler.torch_compat.dynamo.capture_reasons import summarize_break

_RESUMED = re.compile(r"(?:torch_dynamo_resume_in_)+(.+)_at_(\d+)$")


@dataclass(frozen=True, slots=True)
class CompiledFrame:
    """One compile of a function, or of the rest of one after a graph break.

    Attributes:
        compile: Number of the frame and of its compile: `0/1`.
        function: Its name in the program.
        line: Its first line; of the rest of a function, the line that broke the graph.
        resumed: Whether it is the rest of a function.
        started: Microseconds since the epoch.
        breaks: Why Dynamo broke its graph.
        guard: The guard of an earlier compile that failed; empty for the first compile.
    """

    compile: str
    function: str
    file: str
    line: int
    resumed: bool
    started: int
    seconds: float
    breaks: tuple[str, ...]
    guard: str


def compiled_frames() -> Iterator[CompiledFrame]:
    """Yield the last compiled frames, oldest first; compiles of backward graphs are none."""
    utils: Any = importlib.import_module("torch._dynamo.utils")
    for metrics in utils.get_compilation_metrics():
        if metrics.co_name is not None and metrics.compile_id is not None:
            yield _frame(metrics)


def _frame(metrics: Any) -> CompiledFrame:
    resumed = _RESUMED.match(metrics.co_name)
    return CompiledFrame(
        compile=str(metrics.compile_id),
        function=resumed[1] if resumed else metrics.co_name,
        file=metrics.co_filename or "",
        line=int(resumed[2]) if resumed else metrics.co_firstlineno or 0,
        resumed=resumed is not None,
        started=metrics.start_time_us or 0,
        seconds=metrics.entire_frame_compile_time_s or 0.0,
        breaks=tuple(sorted(map(summarize_break, metrics.restart_reasons or ()))),
        guard=_guard(metrics.recompile_reason or ""),
    )


def _guard(reason: str) -> str:
    """Return the failed guard alone.

    >>> _guard("4/0: n == 1      # def g(x, n): return x  # a.py:18 in g\\nUser stack trace:")
    'n == 1'
    """
    first = reason.partition("\n")[0].partition(": ")
    return (first[2] or first[0]).partition("  # ")[0].strip()
