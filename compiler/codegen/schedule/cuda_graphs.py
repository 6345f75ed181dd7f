"""A compiled graph as CUDA graphs: recorded after two calls, and replayed by one launch.

A call takes the first recording that fits its inputs and is free (`recording.py`). If there is
none, another is made: a program that still holds the results of its last call when it makes the
next one needs two. The last of `RECORDINGS` fits more and is always free: it keeps only parameters
where they are, and gives copies. When that one does not fit either, parameters have moved: all are
dropped and made again, a few times; then the graph runs without, which is logged.
"""

import logging
import weakref
from collections.abc import Sequence
from threading import Lock
from typing import Any

import torch
from torch import Tensor
from torch.fx import GraphModule

from ctk.compiler.codegen.base import BoxedCallable, as_boxed, no_data
from ctk.compiler.codegen.kernels import KernelContext
from ctk.compiler.codegen.schedule.cuda_graph_reasons import (
    constants_of,
    device_of,
    reason_against,
    written_inputs,
)
from ctk.compiler.codegen.schedule.recording import Device, RecordableGraph, Recording
from ctk.compiler.errors import ConfigError
from ctk.compiler.observe import first_line
from ctk.compiler.torch_compat.gpu import cuda_graphs

log = logging.getLogger("ctk.codegen")

RECORDINGS = 4
"""How many of a graph live at once; each has memory of its own."""

MOST = 4 * RECORDINGS
"""How many are made of a graph in all."""

_WARM_UPS = 2


def with_cuda_graphs(
    compiled: BoxedCallable, gm: GraphModule, context: KernelContext
) -> BoxedCallable:
    """Return a callable that does the same by CUDA graphs; itself where that cannot be.

    Raises:
        ConfigError: There is no CUDA device.
    """
    if not torch.cuda.is_available():
        raise ConfigError(
            "kernels.cuda_graphs=true needs a CUDA device, and torch sees none: leave it out here"
        )
    reason = "who observes it sees kernels" if context.numbering.observer else reason_against(gm)
    if reason is not None:
        refuse(context.stage, reason)
        return compiled
    graph = RecordableGraph(compiled, written_inputs(gm), constants_of(gm))
    recordings = Recordings(graph, context.stage, cuda_graphs.CudaDevice(device_of(gm)))

    def run(args: list[Any]) -> Sequence[object]:
        return recordings.call(args)

    recorded = "kernels.cuda_graphs=true records a graph as it runs: that cannot be stored"
    return as_boxed(run, compiled.ctk_source, lambda: no_data(recorded))


class Recordings:
    """The recordings of one graph."""

    def __init__(self, graph: RecordableGraph, stage: str, device: Device) -> None:
        self._graph = graph
        self._stage = stage
        self._device = device
        self._warm_ups = 0
        self._made: list[Recording] = []
        self._count = 0
        self._is_over = False
        self._seen: list[weakref.ref[Tensor] | None] = []
        self._lock = Lock()

    def call(self, args: list[Any]) -> Sequence[object]:
        """Run the graph; the list of inputs is empty then."""
        with self._lock:
            if self._is_over or self._device.is_capturing():
                return self._graph.run(args)
            if self._warm_ups < _WARM_UPS:
                self._warm_ups += 1
                self._notice(args)
                return self._device.warm_up(lambda: self._graph.run(args))
            fitting = (each for each in self._made if each.fits(args) and each.is_free())
            found = next(fitting, None) or self._record(args)
            if found is None:
                return self._graph.run(args)
            results = found.replay(args)
            args.clear()
            return results

    def _record(self, args: list[Any]) -> Recording | None:
        self._notice(args)
        if len(self._made) == RECORDINGS:
            self._made.clear()
        if self._count == MOST:
            return self._stop(f"its parameters moved, and it was recorded {MOST} times")
        is_last = len(self._made) == RECORDINGS - 1
        kept = {n for n, each in enumerate(args) if self._is_kept(n, each, is_last)}
        try:
            with torch.inference_mode(False), torch.no_grad():
                made = Recording(self._graph, args, kept, self._device, gives_copies=is_last)
        except Exception as error:
            return self._stop(f"the capture failed: {type(error).__name__}: {first_line(error)}")
        self._count += 1
        cuda_graphs.count("CUDA graph: recorded")
        log.debug("graph %s: recorded as CUDA graph number %d", self._stage, self._count)
        self._made.append(made)
        return made

    def _is_kept(self, number: int, value: object, is_last: bool) -> bool:
        if not isinstance(value, Tensor):
            return False
        if is_last or isinstance(value, torch.nn.Parameter):
            return isinstance(value, torch.nn.Parameter)
        seen = self._seen[number]
        return cuda_graphs.is_recorded(value) or (seen is not None and seen() is value)

    def _notice(self, args: Sequence[Any]) -> None:
        """Note which inputs were one tensor in all calls that nothing was recorded for."""
        if not self._seen:
            tensors = (arg if isinstance(arg, Tensor) else None for arg in args)
            self._seen = [None if tensor is None else weakref.ref(tensor) for tensor in tensors]
        pairs = zip(self._seen, args, strict=True)
        self._seen = [old if old is not None and old() is new else None for old, new in pairs]

    def _stop(self, reason: str) -> None:
        self._is_over = True
        self._made.clear()
        refuse(self._stage, reason)


def refuse(stage: str, reason: str) -> None:
    """Log in one line, and count, the reason why a graph runs without CUDA graphs."""
    cuda_graphs.count(f"no CUDA graph: {reason}")
    log.warning("graph %s: no CUDA graph: %s; it runs without", stage, reason)
