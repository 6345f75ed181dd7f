"""CUDA graphs: capture the launches of a function, replay them, and track users of its memory.

`torch.cuda.graph` leaves the capturing stream current, the allocator in the capture and the random
generator without its numbers when a capture fails; here all three are restored, so that a graph
without a capture runs as before.

Source: `torch/cuda/graphs.py`, and the care for cuBLAS's workspaces from
`torch/_inductor/cudagraph_trees.py` (`clear_cublas_manager`).
"""

# pyright: reportPrivateUsage=false, reportAttributeAccessIssue=false

from __future__ import annotations

import contextlib
from collections.abc import Callable, Generator
from typing import Any, TypeVar

import torch
from torch import Tensor

from ctk.compiler.torch_compat.gpu.cuda_launch import current_stream

T = TypeVar("T")

_RECORDED = "_ctk_recorded"


class CudaDevice:
    """A device, by its index, on which a function of tensors is recorded."""

    def __init__(self, index: int) -> None:
        self._index = index
        self._side: Any = None
        self._last: Any = None

    def is_capturing(self) -> bool:
        """Return whether a capture of launches is in progress."""
        return torch.cuda.is_current_stream_capturing()

    def warm_up(self, run: Callable[[], T]) -> T:
        """Run a function on the stream of captures, and return its result."""
        with torch.cuda.device(self._index):
            current, side = torch.cuda.current_stream(), self._side_stream()
            side.wait_stream(current)
            with torch.cuda.stream(side):
                results = run()
            current.wait_stream(side)
        return results

    def capture(self, run: Callable[[], T]) -> tuple[T, Callable[[], None]]:
        """Capture a function; return its result and a function that replays its launches.

        Nothing runs yet: the results get their values at the first replay. The graph owns the
        memory allocated meanwhile.
        """
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.device(self._index):
            torch.cuda.synchronize()
            torch._C._cuda_clearCublasWorkspaces()
            self._side_stream().wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(self._side_stream()), _numbers_kept(self._index):
                results = self._capture(graph, run)
            torch._C._cuda_clearCublasWorkspaces()
        return results, lambda: self._replay(graph)

    def _capture(self, graph: Any, run: Callable[[], T]) -> T:
        graph.capture_begin(capture_error_mode="thread_local")  # other threads may do as they like
        try:
            results = run()
        except BaseException:
            with contextlib.suppress(Exception):  # the first error is the cause
                self._end(graph)
            raise
        self._end(graph)
        return results

    def _end(self, graph: Any) -> None:
        try:
            graph.capture_end()
        except Exception:
            with contextlib.suppress(Exception):  # it may have ended before it failed
                torch._C._cuda_endAllocateToPool(self._index, graph.pool())
            raise

    def _replay(self, graph: Any) -> None:
        """Launch a graph on the current stream, after its earlier launches on other streams."""
        number = current_stream(self._index)
        if self._last is None or number != self._last.cuda_stream:
            stream = torch.cuda.current_stream(self._index)
            if self._last is not None:
                stream.wait_stream(self._last)
            self._last = stream
        graph.replay()

    def _side_stream(self) -> Any:
        if self._side is None:
            self._side = torch.cuda.Stream(self._index)
        return self._side


@contextlib.contextmanager
def _numbers_kept(device: int) -> Generator[None]:
    """Restore the generator of a device outside the capture, if the block raises."""
    generator = torch.cuda.default_generators[device]
    state = generator.get_state()
    try:
        yield
    except BaseException:
        with contextlib.suppress(Exception):  # the error of the capture is the cause
            fresh = torch.Generator(torch.device("cuda", device))
            fresh.set_state(state)
            generator.graphsafe_set_state(fresh.graphsafe_get_state())
        raise


def reason_of(target: object) -> str | None:
    """Return why an operator cannot be captured by its declarations, or None."""
    tags = getattr(target, "tags", ())
    if torch.Tag.dynamic_output_shape in tags:
        return "the size of its result depends on values"
    if torch.Tag.data_dependent_output in tags:
        return "it waits for a value"
    return "torch says so" if torch.Tag.cudagraph_unsafe in tags else None


def count(what: str) -> None:
    """Count an event in `torch._dynamo.utils.counters["ctk"]`."""
    from torch._dynamo.utils import counters

    counters["ctk"][what] += 1


def copy_all(targets: list[Tensor], sources: list[Tensor]) -> None:
    """Copy tensors into others, in one launch if possible."""
    torch._foreach_copy_(targets, sources)


def uses_of(storage: torch.UntypedStorage) -> int:
    """Return how many tensors hold a storage, and one more for its Python object."""
    return torch._C._storage_Use_Count(storage._cdata)


def mark_recorded(storage: torch.UntypedStorage) -> None:
    """Mark a storage, on its Python object, as at one address in every replay of its graph."""
    setattr(storage, _RECORDED, True)


def is_recorded(tensor: Tensor) -> bool:
    """Return whether a tensor is in memory that was marked."""
    return getattr(tensor.untyped_storage(), _RECORDED, False)
