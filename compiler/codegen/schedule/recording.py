"""One recording of a graph: the addresses that it reads, memory of its own, and its replay.

    kept      an input that is read where it is: a parameter, memory of another recording, the same
              tensor in all calls so far. The recording fits a call only if it is still there
    copied    any other input: into memory of the recording at each call, and back from it if the
              graph writes to it
    results   new tensors in the memory that the recording wrote. It is free for another call when
              none of them is referenced: by the caller, a view, or autograd, which saves some

Source: `torch/_inductor/cudagraph_trees.py`, which knows by the same counts whose results live.
Here a graph is recorded again, in other memory, where that one stops with an error.
"""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias, TypeVar

import torch
from torch import Tensor

from ctk.compiler.torch_compat.fx.graphs import storage_of
from ctk.compiler.torch_compat.gpu import cuda_graphs
from ctk.compiler.torch_compat.process import strided_tensors

T = TypeVar("T")
Run: TypeAlias = Callable[[list[Any]], Sequence[object]]


class Device(Protocol):
    """Captures and replays: `CudaDevice`, or in tests a substitute on the CPU."""

    def is_capturing(self) -> bool: ...

    def warm_up(self, run: Callable[[], T]) -> T: ...

    def capture(self, run: Callable[[], T]) -> tuple[T, Callable[[], None]]: ...


@dataclass(frozen=True, slots=True)
class RecordableGraph:
    """A graph that can be recorded; `written` are the numbers of the inputs that it writes to."""

    run: Run
    written: frozenset[int] = frozenset()
    constants: tuple[Tensor, ...] = ()


@dataclass(frozen=True, slots=True)
class _Part:
    """A result in memory of an input, given by its number, or of the recording."""

    base: int | Tensor
    size: tuple[int, ...]
    stride: tuple[int, ...]
    offset: int

    def of(self, base: Tensor) -> Tensor:
        return strided_tensors.reinterpret()(base, self.size, self.stride, self.offset)

    def in_copy(self, storage: torch.UntypedStorage) -> Tensor:
        assert isinstance(self.base, Tensor)
        made = torch.empty(0, dtype=self.base.dtype, device=self.base.device)
        at = self.base.storage_offset() + self.offset
        return made.set_(storage, at, self.size, self.stride)


class Recording:
    """A graph recorded with some inputs.

    Args:
        args: Inputs of a call: tensors, and values that are always the same.
        kept: The numbers of the inputs that are read where they are.
        gives_copies: Results are copies, so that the recording is always free.
    """

    def __init__(
        self,
        graph: RecordableGraph,
        args: Sequence[Any],
        kept: Collection[int],
        device: Device,
        *,
        gives_copies: bool = False,
    ) -> None:
        tensors = [n for n, each in enumerate(args) if isinstance(each, Tensor)]
        loose = [n for n in tensors if not isinstance(args[n], torch.nn.Parameter)]
        self._kept = [n for n in tensors if n in kept]
        self._places = [args[n].data_ptr() for n in self._kept]
        self._layouts = [(n, args[n].shape, args[n].stride()) for n in loose]
        copied = [n for n in tensors if n not in kept]
        given = list(args)
        for n in copied:
            given[n] = torch.empty_strided(
                args[n].shape, args[n].stride(), dtype=args[n].dtype, device=args[n].device
            )
        self._copied = copied
        self._buffers = [_distinct(given[n]) for n in copied]
        self._written = [(n, given[n]) for n in graph.written if n in copied]
        self._gives_copies = gives_copies
        results, self._replay = device.capture(lambda: graph.run(list(given)))
        self._owned: dict[int, torch.UntypedStorage] = {}
        self._bases: dict[tuple[int, torch.dtype], Tensor] = {}
        owners = {storage_of(given[n]): n for n in reversed(tensors)}
        fixed = {storage_of(constant) for constant in graph.constants}
        self._results = [self._part(result, given, owners, fixed) for result in results]
        held = [memory for memory, _ in self._bases]
        self._uses = [(s, held.count(memory) + 1) for memory, s in self._owned.items()]

    def fits(self, args: Sequence[Any]) -> bool:
        """Return whether inputs are where they were, with the strides that they had."""
        return [args[n].data_ptr() for n in self._kept] == self._places and all(
            args[n].stride() == stride and args[n].shape == shape
            for n, shape, stride in self._layouts
        )

    def is_free(self) -> bool:
        """Return whether no result of an earlier call is still referenced."""
        return self._gives_copies or all(
            cuda_graphs.uses_of(storage) <= own for storage, own in self._uses
        )

    def replay(self, args: Sequence[Any]) -> list[object]:
        """Run the graph on inputs that fit, and return its results."""
        if self._copied:
            cuda_graphs.copy_all(self._buffers, [_distinct(args[n]) for n in self._copied])
        self._replay()
        if self._written:
            with torch.no_grad():
                for n, buffer in self._written:
                    args[n].copy_(buffer)
        copies = {m: s.clone() for m, s in self._owned.items()} if self._gives_copies else {}
        return [self._result(result, args, copies) for result in self._results]

    def _part(
        self, value: object, given: Sequence[Any], owners: dict[int, int], fixed: Collection[int]
    ) -> object:
        """Return a result as a part of memory; itself if it is the same in each call."""
        if not isinstance(value, Tensor):
            return value
        memory = storage_of(value)
        if memory in fixed:
            return value
        if memory in owners:
            whole = next((n for n, each in enumerate(given) if each is value), None)
            owner = owners[memory]
            return _part_of(value, given[owner], owner) if whole is None else _Input(whole)
        if memory not in self._owned:
            self._owned[memory] = value.untyped_storage()
            cuda_graphs.mark_recorded(self._owned[memory])
        base = self._bases.setdefault((memory, value.dtype), value)
        return _part_of(value, base, base)

    def _result(
        self, part: object, args: Sequence[Any], copies: dict[int, torch.UntypedStorage]
    ) -> object:
        if isinstance(part, _Input):
            return args[part.number]
        if not isinstance(part, _Part):
            return part
        if isinstance(part.base, int):
            return part.of(args[part.base])
        if copies:
            return part.in_copy(copies[storage_of(part.base)])
        return part.of(part.base)


@dataclass(frozen=True, slots=True)
class _Input:
    """A result that is an input."""

    number: int


def _part_of(value: Tensor, base: Tensor, name: int | Tensor) -> _Part:
    offset = int(value.storage_offset()) - int(base.storage_offset())
    return _Part(name, tuple(value.shape), value.stride(), offset)


def _distinct(tensor: Tensor) -> Tensor:
    """Return a tensor without autograd, and without its broadcast dimensions."""
    stride = tensor.stride()
    lengths = zip(tensor.shape, stride, strict=True)
    size = tuple(1 if step == 0 else length for length, step in lengths)
    return strided_tensors.reinterpret()(tensor, size, stride, 0)
