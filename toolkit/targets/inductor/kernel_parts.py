"""The kernels that Inductor generates for one graph, and their reads and writes when called.

While the first call is recorded, each kernel of the module is replaced by a spy that reads the
buffers before and after the kernel runs. While launches are observed, the spy reports the running
kernel, so that a deadly one is named. Buffers are matched with nodes by Inductor's own bookkeeping;
buffers without a node's value, or overwritten in place, are not reported; nor is memory that a
kernel takes over in another layout, or fills in parts. Extern calls (`mm`) are not kernels: their
results are seen as inputs of the next kernel.
"""

import threading
from collections import deque
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any

from torch import Tensor

from ctk.compiler.codegen.watch_calls import WatchedGraph
from ctk.compiler.fx.clone import clone_value
from ctk.compiler.observe import KernelCall, KernelId
from ctk.compiler.torch_compat.fx.graphs import Boxed, boxed
from ctk.compiler.torch_compat.inductor import inductor_api as inductor
from ctk.repro_templates.numbers.errors import identical
from ctk.repro_templates.numbers.layout import share


@dataclass(slots=True)
class KernelPart:
    """A generated kernel.

    Attributes:
        suffix: The suffix of a file with that code.
        nodes: Names of the nodes that it computes.
        writes: The node whose value each written buffer holds.
        pointers: The name of each of its buffers in the source.
        vetoed: Its nodes fall back to ATen instead.
    """

    id: KernelId
    name: str
    source: str
    suffix: str
    nodes: tuple[str, ...]
    writes: Mapping[str, str]
    pointers: Mapping[str, str]
    vetoed: bool = False

    @property
    def stores(self) -> dict[str, str]:
        """The names in the source of the memory of each stored node."""
        known = self.pointers
        return {node: known[buffer] for buffer, node in self.writes.items() if buffer in known}


@dataclass(frozen=True, slots=True)
class Launch:
    """A call of a kernel in the module: the names of its arguments, in order.

    Attributes:
        arguments: Names of buffers, or other expressions.
        reads: For each buffer among them, the node whose value it holds before the call.
    """

    part: KernelPart
    arguments: tuple[str, ...]
    reads: Mapping[str, str]


@dataclass(slots=True)
class _Seen:
    """Observations of the recorded call so far.

    Attributes:
        keep_values: Whether kernels record the values that they read and write.
    """

    queues: dict[str, deque[Launch]]
    made: WatchedGraph
    keep_values: bool
    values: dict[str, object] = field(default_factory=dict[str, object])
    thread: int = field(default_factory=threading.get_ident)

    def next_launch(self, name: str) -> Launch | None:
        queue = self.queues.get(name)
        return queue.popleft() if queue and self.thread == threading.get_ident() else None

    @contextmanager
    def running(self, part: KernelPart) -> Generator[None]:
        """Say that a kernel runs, and after it that the rest of its graph does."""
        observer = self.made.observer
        if observer.keep_launches:
            observer.on_launch(part.id)
        yield
        if observer.keep_launches:
            for graph in self.made.kernels:
                observer.on_launch(graph)


def spy_on_kernels(
    call: Boxed, module: ModuleType | None, launches: Sequence[Launch], made: WatchedGraph
) -> Boxed:
    """Return `call` with kernels that record their values while a call is recorded, or launches.

    No values under CUDA graphs: their memory pool takes no copies.
    """
    keep_launches = made.observer.keep_launches
    keep_values = made.observer.keep_calls and not inductor.records_cuda_graphs()
    if module is None or not launches or not (keep_values or keep_launches):
        return call

    def run(args: list[Any]) -> Any:
        if made.returned.calls is None and not keep_launches:
            return call(args)
        with _put_spies(module, launches, made, keep_values=keep_values):
            return call(args)

    return boxed(run)


@contextmanager
def _put_spies(
    module: ModuleType, launches: Sequence[Launch], made: WatchedGraph, *, keep_values: bool
) -> Generator[None]:
    """Put spies in the place of a module's kernels; other compiles may share the module."""
    queues: dict[str, deque[Launch]] = {}
    for launch in launches:
        queues.setdefault(launch.part.name, deque()).append(launch)
    seen, names = _Seen(queues, made, keep_values), vars(module)
    kernels = {name: names[name] for name in queues if name in names}
    names.update({name: _Spy(kernel, name, seen) for name, kernel in kernels.items()})
    try:
        yield
    finally:
        names.update(kernels)


def _is_part_of_another(name: str, buffers: Mapping[str, object]) -> bool:
    """Return whether a buffer shares elements with another argument of the same kernel.

    A kernel may write the parts of a concatenation and then read the whole, which holds no value
    yet when the kernel begins.
    """
    return any(share(buffers[name], other) for each, other in buffers.items() if each != name)


class _Spy:
    """A kernel that records its reads and writes: a C++ one is called, a Triton one is `run`."""

    def __init__(self, kernel: Any, name: str, seen: _Seen) -> None:
        self._kernel, self._name, self._seen = kernel, name, seen

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._note_launch(self._kernel, args, kwargs)

    def run(self, *args: Any, **kwargs: Any) -> Any:
        return self._note_launch(self._kernel.run, args, kwargs)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._kernel, name)

    def _note_launch(self, kernel: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        launch = self._seen.next_launch(self._name)
        if launch is None:
            return kernel(*args, **kwargs)
        with self._seen.running(launch.part):
            if self._seen.made.returned.calls is None or not self._seen.keep_values:
                return kernel(*args, **kwargs)
            return self._record_launch(launch, kernel, args, kwargs)

    def _record_launch(
        self, launch: Launch, kernel: Callable[..., Any], args: Any, kwargs: Any
    ) -> Any:
        buffers = dict(zip(launch.arguments, args, strict=False))
        read = {
            node: self._value(node, buffers[name])
            for name, node in launch.reads.items()
            if not _is_part_of_another(name, buffers)
        }
        result = kernel(*args, **kwargs)
        written = {
            node: clone_value(buffers[name])
            for name, node in launch.part.writes.items()
            if isinstance(buffers.get(name), Tensor)
        }
        self._seen.values.update(written)
        calls = self._seen.made.returned.calls
        if calls is not None:
            calls.append(KernelCall(launch.part.id, written, read))
        return result

    def _value(self, node: str, now: object) -> object:
        """Return a node's value as it is read; the very object that was noted, if it still is."""
        before = self._seen.values.get(node)
        if before is not None and identical(before, now):
            return before
        value = clone_value(now)
        self._seen.values.setdefault(node, value)
        return value
