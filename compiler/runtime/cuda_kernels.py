"""Kernels for GPUs as data: machine code, and plans by sizes.

    plan      launches for sizes up to some bounds, one after the other, with memory in between
    launch    programs of one function

A kernel whose sizes are fixed has one plan. Functions are compiled for tensors that begin at a
multiple of 16 bytes, as all do but some views: those are copied, and copied back if written. A
launcher in C may be stored with them (`c_launcher.py`); its library is for the machine it is from.
"""

import logging
import math
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any

import torch
from torch import Tensor

from ctk.compiler.errors import ArtifactError
from ctk.compiler.runtime import c_kernels
from ctk.compiler.runtime.stored_kernels import Blobs
from ctk.compiler.runtime.values import size_of, value_of
from ctk.compiler.sizes.index import Index
from ctk.compiler.sizes.size_guards import number_of
from ctk.compiler.torch_compat.gpu import cuda_launch, launch_hooks
from ctk.compiler.torch_compat.gpu.c_launcher import CLauncher, note_launch
from ctk.compiler.torch_compat.process.strided_tensors import empty

log = logging.getLogger("ctk.runtime")

ALIGNMENT = 16


def load_kernels(stored: Sequence[Any], blobs: Blobs) -> list[Callable[..., None]]:
    """Return the launchers of stored kernels: each takes tensors, then sizes.

    Raises:
        ArtifactError: The driver rejects the code of one.
    """
    launcher = _launcher_of(stored, blobs)
    try:
        return [CudaKernel(data, blobs).launcher(launcher) for data in stored]
    except cuda_launch.CudaError as error:
        raise ArtifactError(
            f"{error}\nnext: compile it again on this machine, for this GPU and this driver"
        ) from error


def _launcher_of(stored: Sequence[Any], blobs: Blobs) -> CLauncher | None:
    """Return the launcher in C that was stored with kernels; None if there is none for here."""
    for data in stored:
        if data.get("launcher"):
            try:
                return _load_launcher(bytes(blobs[data["launcher"]]))
            except ArtifactError as error:
                log.warning("kernels are launched from Python, which is slower: %s", error)
    return None


@cache
def _load_launcher(binary: bytes) -> CLauncher:
    library = c_kernels.load_library(binary)
    return CLauncher(library.with_python(), library)


class _Launch:
    def __init__(self, data: Any, blobs: Blobs, device: int) -> None:
        self.grid = [(size_of(numel), int(block)) for numel, block in data["grid"]]
        self.arguments = tuple(map(int, data["arguments"]))
        self.pointers = int(data["pointers"])
        self.written = int(data["written"])
        self.loaded = _load(data["code"], blobs, device, data["types"])

    def programs(self, sizes: Mapping[str, int]) -> int:
        return math.prod(-(-number_of(numel, sizes) // block) for numel, block in self.grid)

    def run(self, programs: int, every: Sequence[Any], name: str) -> None:
        """Launch programs; of all tensors and sizes of the kernel, the launch picks its own."""
        if programs == 0:
            return
        picked = [every[place] for place in self.arguments]
        tensors, sizes = picked[: self.pointers], picked[self.pointers :]
        pointers = [tensor.data_ptr() for tensor in tensors]
        together = 0
        for pointer in pointers:
            together |= pointer
        if together % ALIGNMENT:
            covers = [_cover(each) for each in tensors]
            copies = [each if each.data_ptr() % ALIGNMENT == 0 else each.clone() for each in covers]
            self._launch(programs, [each.data_ptr() for each in copies], sizes, name)
            for cover, copy in list(zip(covers, copies, strict=True))[: self.written]:
                if copy is not cover:
                    cover.copy_(copy)
        else:
            self._launch(programs, pointers, sizes, name)

    def _launch(self, programs: int, pointers: list[int], sizes: list[int], name: str) -> None:
        error = launch_hooks.launch(self.loaded, programs, (*pointers, *sizes))
        if error:
            raise RuntimeError(f"kernel {name}: launch failed: {error}")


def _cover(tensor: Tensor) -> Tensor:
    """Return the memory that a tensor covers, from its first element to its last, as one row."""
    steps = zip(tensor.shape, tensor.stride(), strict=True)
    last = sum((size - 1) * stride for size, stride in steps)
    return tensor.as_strided((last + 1,), (1,)) if tensor.numel() else tensor


class _Plan:
    """The launches for sizes up to some bounds."""

    def __init__(self, data: Any, blobs: Blobs, device: int) -> None:
        self.bounds = data["bounds"]
        self.memory: list[tuple[Index, torch.dtype]] = [
            (size_of(size), value_of({"dtype": dtype})) for size, dtype in data["memory"]
        ]
        self.launches = [_Launch(each, blobs, device) for each in data["launches"]]

    def holds(self, sizes: Sequence[int]) -> bool:
        pairs = zip(sizes, self.bounds, strict=True)
        return all(bound is None or size <= bound for size, bound in pairs)


class CudaKernel:
    """A stored kernel on its device."""

    def __init__(self, data: Any, blobs: Blobs) -> None:
        self.name = str(data["kernel"])
        self._device = int(data["device"])
        self._on = torch.device("cuda", self._device)
        self._pointers = int(data["pointers"])
        self._symbols = tuple(map(str, data["symbols"]))
        self._plans = [_Plan(each, blobs, self._device) for each in data["plans"]]
        self._ready: dict[tuple[int, ...], Callable[[tuple[Any, ...]], None]] = {}

    def launcher(self, launcher: CLauncher | None) -> Callable[..., None]:
        """Return the function that launches it: of C, or of Python."""
        if launcher is None:
            return self.launch
        return launcher.function(
            self.launch, self._prepare_launch, self._device, self._pointers, len(self._symbols)
        )

    def _prepare_launch(self, *arguments: Any) -> bytes | None:
        """Return the launch for aligned tensors; None if these sizes do not take one launch."""
        sizes = arguments[self._pointers :]
        plan = self._plan_for(sizes)
        (launch, *others) = plan.launches
        programs = launch.programs(dict(zip(self._symbols, sizes, strict=True)))
        is_whole = sorted(launch.arguments) == [*range(len(arguments))]
        if plan.memory or others or not programs or not is_whole:
            return None
        return note_launch(launch.loaded, programs, sizes, launch.arguments)

    def launch(self, *arguments: Any) -> None:
        """Run the kernel: its tensors, then its sizes."""
        sizes = arguments[self._pointers :]
        ready = self._ready.get(sizes)
        if ready is None:
            if len(self._ready) >= _KEPT:
                self._ready.clear()
            ready = self._ready[sizes] = self._prepare(sizes)
        ready(arguments)

    def _plan_for(self, sizes: tuple[int, ...]) -> _Plan:
        plan = next((each for each in self._plans if each.holds(sizes)), None)
        if plan is None:
            raise RuntimeError(f"kernel {self.name} has no code for the sizes {list(sizes)}")
        return plan

    def _prepare(self, sizes: tuple[int, ...]) -> Callable[[tuple[Any, ...]], None]:
        plan = self._plan_for(sizes)
        values = dict(zip(self._symbols, sizes, strict=True))
        memory = [((number_of(size, values),), dtype) for size, dtype in plan.memory]
        steps = [(each, each.programs(values)) for each in plan.launches]
        name, on = self.name, self._on

        def run(arguments: tuple[Any, ...]) -> None:
            between = (empty(size, (1,), dtype, on) for size, dtype in memory)
            every = [*arguments, *between] if memory else arguments
            for launch, programs in steps:
                launch.run(programs, every, name)

        return run


_KEPT = 1024
"""Limit of the sizes for which a kernel keeps its prepared launches."""


def _load(data: Any, blobs: Blobs, device: int, types: Sequence[str]) -> cuda_launch.Loaded:
    cubin = bytes(blobs[data["cubin"]])
    numbers = (int(data[name]) for name in ("shared", "threads", "hidden"))
    code = cuda_launch.MachineCode(str(data["name"]), cubin, *numbers)
    return cuda_launch.Loaded(code, device, types)
