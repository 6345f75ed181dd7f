"""frames.jsonl beside the graphs of a process: the frames that Dynamo compiled.

    {"event": "frame", "compile": "0/0", "function": "forward", "breaks": [...], "guard": "", ...}

A frame is known when its compile is over, so it is written at the next event: the first call of its
graph, the next compile, or the end of the process. At most `MOST_FRAMES` frames are written.
"""

import json
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from ctk.compiler.torch_compat.dynamo.compiled_frames import CompiledFrame, compiled_frames
from ctk.toolkit.case.formats.checked_types import Line, Size
from ctk.toolkit.case.formats.files import append_line
from ctk.toolkit.case.formats.plain_text import REASON_LENGTH
from ctk.toolkit.case.formats.schema import document, encode
from ctk.toolkit.case.formats.scrub import scrub_line
from ctk.toolkit.case.graphs.places import relative_place

FRAMES = "frames.jsonl"
MOST_FRAMES = 2_000
"""Frames of one process that are written."""


@document
@dataclass(frozen=True, slots=True)
class DumpedFrame:
    """One compile of a function, or of the rest of one after a graph break.

    Attributes:
        place: `FILE:LINE` of its first line; of the rest of a function, of the graph break.
        resumed: Whether it is the rest of a function.
        breaks: Why Dynamo broke its graph.
        guard: The failed guard that made it a recompile; empty for a first compile.
    """

    compile: Line
    function: Line
    place: Line
    resumed: bool
    seconds: Size
    breaks: tuple[Line, ...]
    guard: Line
    event: Literal["frame"] = "frame"


@dataclass(slots=True)
class FrameLog:
    """Writes each frame of this process once, from its creation on; thread-safe.

    After the first problem it writes nothing more.
    """

    _since: int = field(default_factory=lambda: int(time.time() * 1e6))
    _written: set[tuple[str, int]] = field(default_factory=set[tuple[str, int]])
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _has_failed: bool = False

    def write(self, folder: Path) -> None:
        """Write the frames that are not written yet."""
        with self._lock:
            if self._has_failed:
                return
            self._has_failed = True
            for frame in self._new_frames():
                append_line(folder / FRAMES, json.dumps(encode(_describe(frame))))
            self._has_failed = False

    def _new_frames(self) -> Iterator[CompiledFrame]:
        for frame in compiled_frames():
            key = frame.compile, frame.started
            is_new = frame.started >= self._since and key not in self._written
            if is_new and len(self._written) < MOST_FRAMES:
                self._written.add(key)
                yield frame


def _describe(frame: CompiledFrame) -> DumpedFrame:
    return DumpedFrame(
        compile=frame.compile,
        function=frame.function,
        place=relative_place(frame.file, frame.line),
        resumed=frame.resumed,
        seconds=round(frame.seconds, 6),
        breaks=tuple(scrub_line(text, REASON_LENGTH) for text in frame.breaks),
        guard=scrub_line(frame.guard, REASON_LENGTH),
    )
