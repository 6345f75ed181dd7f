"""What a generator of kernels adds to the schedule: how kernels of the loop IR are compiled."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from ctk.compiler.lowering.ir import Buffer, Kernel
from ctk.compiler.options.choices import Options
from ctk.compiler.runtime.stored_kernels import StoredKernel


@dataclass(frozen=True, slots=True)
class CompiledKernel:
    """A kernel that can be called.

    Attributes:
        kernel: What it computes.
        source: Its code.
        launch: Runs it: the buffers of `arguments_of(kernel)` in their order, as
            `Generator.takes` says, then its sizes.
        seconds: How long it took to print, and its share of the time that compiling took; no share
            if an equal one was compiled before.
        stored: Returns it as data. Raises `ArtifactError` if it cannot be stored.
        code: What a package compiles, for a kernel that was only printed.
    """

    kernel: Kernel
    source: str
    launch: Callable[..., None]
    seconds: float
    stored: Callable[[], StoredKernel]
    code: object = None


@dataclass(frozen=True, slots=True)
class KernelSetting:
    """What the kernels of a graph are compiled for.

    Attributes:
        exact: With the bits of eager: no contraction, no reassociation.
        sizes: The values that size symbols had when the graph was traced, as far as known.
        largest: The largest values that they may have; None: there is none.
        ahead_of_time: They are for a package, and are not loaded.
    """

    exact: bool
    sizes: Mapping[str, int]
    largest: Mapping[str, int | None] = field(default_factory=dict[str, "int | None"])
    ahead_of_time: bool = False


@dataclass(frozen=True, slots=True)
class Generator:
    """A generator of kernels.

    Attributes:
        name: As in the table of code generators.
        devices: Types of the devices that its kernels run on, with these options.
        compile_kernels: Compiles the kernels of a graph. Raises `CodegenUnsupported` if it cannot
            at all: no compiler.
        options: Its options, as they are by default; their name is that of the generator.
        takes: What `launch` gets for a buffer: the address of its memory, or the tensor.
        min_outer: With fewer outer iterations than this, a kernel leaves processors idle.
        small: A kernel of fewer iterations than this may have as few as it likes.
    """

    name: str
    devices: Callable[[Any], frozenset[str]]
    compile_kernels: Callable[
        [Sequence[Kernel], Mapping[str, Buffer], Any, KernelSetting], Sequence[CompiledKernel]
    ]
    options: Options
    takes: Literal["address", "tensor"] = "address"
    min_outer: int = 16
    small: int = 16384
