"""A generator of kernels, and its options: it compiles the kernels that a schedule launches."""

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, TypeVar

import torch

from ctk.compiler.lowering.ir import Buffer, Kernel
from ctk.compiler.options.choices import Options
from ctk.compiler.options.config import Config
from ctk.compiler.rewriting.options import set_options
from ctk.compiler.runtime.stored_kernels import StoredKernel
from ctk.compiler.torch_compat.aot import exported
from ctk.compiler.torch_compat.fake import fake_tensors as fake

AnyOptions = TypeVar("AnyOptions", bound=Options)


@dataclass(frozen=True, slots=True)
class KernelOptions(Options):
    """How graphs become kernels, in any language: `Config(passes={"kernels": {"exact": True}})`.

    Attributes:
        exact: Kernels only of operators whose bits are those of eager, rounded where eager rounds;
            no reassociation, no contraction, no approximation. Others are library calls.
        accumulate: The type of sums of floats of 32 bits and less.
        background: Kernels are compiled in a thread, and calls run in eager until they are there.
            An observed compile waits for them nevertheless, so that each run shows the same.
        cuda_graphs: A graph whose sizes are fixed is launched as a whole, by CUDA graphs. It takes
            more memory: results keep that of a recording, and each recording has its own.
        ahead_of_time: Kernels are printed, or compiled for a device that need not be here, and not
            loaded, so the graph cannot be called. Writers of packages set this.
    """

    name: ClassVar[str] = "kernels"

    exact: bool = False
    accumulate: Literal["float32", "float64"] = "float32"
    background: bool = False
    cuda_graphs: bool = False
    ahead_of_time: bool = False


@dataclass(frozen=True, slots=True)
class CompiledKernel:
    """A kernel that can be called.

    Attributes:
        launch: Runs it on the buffers of `arguments_of(kernel)` in their order, each as an address
            or a tensor (`Generator.takes`), then its sizes.
        seconds: Time to print it, and its share of the time to compile; no share if an equal
            kernel was compiled before, or if it is deferred.
        stored: Returns it as data. Raises `ArtifactError` if it cannot be stored.
        code: The code for a package to compile, of a kernel that was only printed.
        ready: Waits until a deferred kernel is compiled; raises the compiler's error.
        begun: The seconds of its compiles in threads, which are cancelled if the graph fails.
    """

    kernel: Kernel
    source: str
    launch: Callable[..., None]
    seconds: float
    stored: Callable[[], StoredKernel]
    code: object = None
    ready: Callable[[], object] = lambda: None
    begun: Sequence["Future[float]"] = ()


@dataclass(frozen=True, slots=True)
class KernelSetting:
    """The assumptions under which the kernels of a graph are compiled.

    Attributes:
        exact: With the bits of eager: no contraction, no reassociation.
        sizes: The values of size symbols when the graph was traced, as far as known.
        largest: The largest values of size symbols; None: without a limit.
        ahead_of_time: The kernels are for a package, and are not loaded.
        deferred: They may compile in threads until `CompiledKernel.ready` is called.
    """

    exact: bool = False
    sizes: Mapping[str, int] = field(default_factory=dict[str, int])
    largest: Mapping[str, int | None] = field(default_factory=dict[str, "int | None"])
    ahead_of_time: bool = False
    deferred: bool = False


@dataclass(frozen=True, slots=True)
class Generator:
    """A generator of kernels.

    Attributes:
        devices: Types of the devices that its kernels run on, with these options.
        compile_kernels: Compiles the kernels of a graph. Raises `CodegenUnsupported` if it cannot
            compile any, for lack of a compiler.
        options: The defaults of its options, which bear its name.
        takes: The form in which `launch` takes a buffer: the address of its memory, or the tensor.
        min_outer: With fewer outer iterations than this, a kernel leaves processors idle.
        small: A kernel of fewer iterations than this may have any number of outer iterations.
        attention_gradients: It has kernels of the gradient of attention.
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
    attention_gradients: bool = True


def with_config(options: AnyOptions, config: Config) -> AnyOptions:
    """Return options as a compile has them: for every stage, or for `lowered`.

    Raises:
        ConfigError: One is unknown, or its value is not allowed.
    """
    for name in (options.name, f"lowered/{options.name}"):
        options = set_options(options, name, config.passes.get(name, {}))
    return options


def setting_of(options: KernelOptions, inputs: Sequence[object]) -> KernelSetting:
    """Return the setting for a graph with some example inputs."""
    mode = fake.mode_of(inputs)
    ranges = exported.symbol_ranges(mode) if mode is not None else {}
    largest = {name: high for name, (_, high) in ranges.items()}
    return KernelSetting(options.exact, _hints(inputs), largest, options.ahead_of_time)


def _hints(inputs: Sequence[object]) -> dict[str, int]:
    tensors = [value for value in inputs if isinstance(value, torch.Tensor)]
    sizes = [size for tensor in tensors for size in (*tensor.shape, *tensor.stride())]
    hints: dict[str, int] = {}
    for size in (*inputs, *sizes):
        if isinstance(size, torch.SymInt):
            name, hint = fake.symbol_and_hint(size)
            if isinstance(hint, int):
                hints[name] = hint
    return hints
