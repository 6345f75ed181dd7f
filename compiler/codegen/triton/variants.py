"""One kernel in all its variants: a source for each layout, a binary for each alignment of it."""

import itertools
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar, TypeAlias

import torch

from ctk.compiler.codegen.schedule.generator import KernelSetting
from ctk.compiler.codegen.triton.binaries import Function, machine_code
from ctk.compiler.codegen.triton.c_launcher_library import c_launcher
from ctk.compiler.codegen.triton.heuristics import Knobs, chunk_length, laid_out, layout_of
from ctk.compiler.codegen.triton.layout import Layout
from ctk.compiler.codegen.triton.row_splitting import Split, can_split, split
from ctk.compiler.codegen.triton.source import function_name, kernel_source
from ctk.compiler.codegen.triton.tuning import TRIED, best_of, keep, key_of, may_run_twice, recall
from ctk.compiler.errors import CodegenUnsupported, CtkError
from ctk.compiler.lowering.attention import Attention
from ctk.compiler.lowering.ir import Buffer, Kernel, Op, Value
from ctk.compiler.lowering.layout import extent_of
from ctk.compiler.lowering.own_memory import require_own_memory
from ctk.compiler.lowering.walk import Arguments, arguments_of, walk
from ctk.compiler.options.choices import Options
from ctk.compiler.sizes.size_guards import number_of
from ctk.compiler.torch_compat.gpu import cuda_launch, launch_hooks, triton_launch
from ctk.compiler.torch_compat.gpu.c_launcher import note_launch
from ctk.compiler.torch_compat.process.strided_tensors import empty

_TYPES = {
    torch.float64: "fp64", torch.float32: "fp32", torch.float16: "fp16", torch.bfloat16: "bf16",
    torch.int64: "i64", torch.int32: "i32", torch.int16: "i16", torch.int8: "i8",
    torch.uint8: "u8", torch.bool: "i1",
}  # fmt: skip

_SHARED = {80: 163 << 10, 87: 163 << 10, 90: 227 << 10, 100: 227 << 10, 103: 227 << 10}
"""Bytes of shared memory that a program may have, by compute capability."""

_LEAST_SHARED = 99 << 10

_GUESS = 1024
_NUMBERS = itertools.count()


@dataclass(frozen=True, slots=True)
class TritonOptions(Options):
    """How kernels are made in Triton.

    Attributes:
        autotune: Time a few layouts of each kernel on the device, and keep the fastest.
        debug: Assert that each access is within its buffer; the message names kernel and node.
        interpret: Run kernels in Triton's interpreter, in numpy, on tensors of the CPU.
        chunk: Split every reduction into chunks of this length, as if there were too few rows; 0
            leaves it to the rules.
        row_limit: The longest row that is kept in registers.
    """

    name: ClassVar[str] = "triton"

    autotune: bool = False
    debug: bool = False
    interpret: bool = False
    chunk: int = 0
    row_limit: int = 32768


class KernelError(CtkError):
    """A kernel could not be compiled or launched; the message names it."""


@dataclass(slots=True)
class _Plan:
    """How a kernel runs with some sizes; `aligned` is for addresses that are multiples of 16."""

    layout: Layout
    programs: int
    aligned: cuda_launch.Loaded | None = None


_Ready: TypeAlias = _Plan | Callable[[tuple[Any, ...]], None]


class _Parts:
    """A kernel that is split, and the memory between its parts."""

    def __init__(
        self,
        whole: "Variants",
        made: Split,
        buffers: Mapping[str, Buffer],
        options: TritonOptions,
        setting: KernelSetting,
    ) -> None:
        every = {**buffers, **made.buffers}
        self.kernels = [
            Variants(kernel, every, options, setting, is_part=True) for kernel in made.kernels
        ]
        self.between = made.buffers
        self._launches: list[Callable[..., None]] = []
        self._symbols = [symbol.name for symbol in whole.arguments.symbols]
        names = [*whole.arguments.buffers, *self._symbols, *made.buffers]
        places = {name: place for place, name in enumerate(names)}
        self._picks = [
            tuple(places[name] for name in _names_of(part.arguments)) for part in self.kernels
        ]

    def for_sizes(self, sizes: tuple[int, ...]) -> Callable[[tuple[Any, ...]], None]:
        """Return a function that runs the parts on the tensors and sizes of the whole kernel."""
        values = dict(zip(self._symbols, sizes, strict=True))
        memory = [
            ((number_of(buffer.shape[0], values),), buffer.dtype, buffer.device)
            for buffer in self.between.values()
        ]
        if not self._launches:
            self._launches = [launcher_of(part) for part in self.kernels]
        steps = [*zip(self._launches, self._picks, strict=True)]

        def launch(arguments: tuple[Any, ...]) -> None:
            every = [*arguments, *(empty(size, (1,), dtype, on) for size, dtype, on in memory)]
            for run, pick in steps:
                run(*[every[place] for place in pick])

        return launch


def _names_of(arguments: Arguments) -> tuple[str, ...]:
    return (*arguments.buffers, *(symbol.name for symbol in arguments.symbols))


def launcher_of(variants: "Variants") -> Callable[..., None]:
    """Return the function that launches a kernel: of C, or where that cannot be, of Python."""
    launcher = None if variants.is_interpreted else c_launcher()
    if launcher is None:
        return variants.launch
    arguments, device = variants.arguments, variants.kernel.device.index or 0
    pointers, sizes = len(arguments.buffers), len(arguments.symbols)
    return launcher.function(variants.launch, variants.prepare_launch, device, pointers, sizes)


class Variants:
    """A kernel that is compiled as it is needed.

    Raises:
        CodegenUnsupported: It may read memory that it has written.
    """

    def __init__(
        self,
        kernel: Kernel,
        buffers: Mapping[str, Buffer],
        options: TritonOptions,
        setting: KernelSetting,
        *,
        is_part: bool = False,
    ) -> None:
        if not isinstance(kernel, Attention):
            require_own_memory(kernel, buffers)
        kernel = laid_out(kernel)
        arguments = arguments_of(kernel)
        self.kernel = kernel
        self.arguments = arguments
        self._buffers = buffers
        self._options = options
        self._setting = setting
        self._is_part = is_part
        self._symbols = [symbol.name for symbol in arguments.symbols]
        self._pointers = len(arguments.buffers)
        self._types = [f"*{_TYPES[buffers[name].dtype]}" for name in arguments.buffers]
        self._extents = {name: extent_of(buffers[name]) for name in arguments.buffers}
        self._guess = {
            symbol.name: setting.sizes.get(symbol.name, max(symbol.low, _GUESS))
            for symbol in arguments.symbols
        }
        self._sources: dict[Layout, str] = {}
        self._functions: dict[Layout, Any] = {}
        self._knobs = Knobs(row_limit=options.row_limit)
        self._parts: dict[int, _Parts] = {}
        self._ready: dict[tuple[int, ...], _Ready] = {}
        self._loaded: dict[object, cuda_launch.Loaded] = {}
        self._device = kernel.device.index or 0

    def prepare(self) -> None:
        """Compile the variant that is expected, if its sizes are known."""
        known = all(name in self._setting.sizes for name in self._symbols)
        if known and not self._options.interpret and not self._setting.ahead_of_time:
            sizes = tuple(self._guess[name] for name in self._symbols)
            self._load(self._expected(), (True,) * self._pointers, sizes)

    def source(self) -> str:
        """Return the source of the variant that is expected."""
        return self._source(self._expected())

    def parts(self) -> list["Variants"]:
        """Return the kernels that it is expected to become: itself, or its parts."""
        length = self._length(tuple(self._guess.values()))
        return [self] if length is None else self._split(length).kernels

    def parts_for(self, sizes: tuple[int, ...]) -> tuple[list["Variants"], dict[str, Buffer]]:
        """Return the kernels that it is for some sizes, and the memory between them."""
        length = self._length(sizes)
        if length is None:
            return [self], {}
        made = self._split(length)
        return made.kernels, dict(made.between)

    def layout_for(self, sizes: tuple[int, ...]) -> Layout:
        """Return the layout of its blocks for some sizes."""
        return self._plan(sizes, self._knobs).layout

    @property
    def is_interpreted(self) -> bool:
        """Whether it runs in Triton's interpreter, or is compiled for another machine."""
        return self._options.interpret or self._setting.ahead_of_time

    def launch(self, *arguments: Any) -> None:
        """Run the kernel: its tensors, then its sizes."""
        sizes = arguments[self._pointers :]
        ready = self._ready_for(sizes, arguments)
        if isinstance(ready, _Plan):
            self._run(ready, arguments[: self._pointers], sizes)
        else:
            ready(arguments)

    def prepare_launch(self, *arguments: Any) -> bytes | None:
        """Return the launch for aligned tensors; None if these sizes do not take one launch."""
        sizes = arguments[self._pointers :]
        ready = self._ready_for(sizes, arguments)
        if not isinstance(ready, _Plan) or ready.programs == 0:
            return None
        loaded = self._load(ready.layout, (True,) * self._pointers, sizes)
        return note_launch(loaded, ready.programs, sizes, range(len(arguments)))

    def _ready_for(self, sizes: tuple[int, ...], arguments: tuple[Any, ...]) -> _Ready:
        ready = self._ready.get(sizes)
        if ready is None:
            ready = self._ready[sizes] = self._prepared(sizes, arguments)
        return ready

    def _prepared(self, sizes: tuple[int, ...], arguments: tuple[Any, ...]) -> _Ready:
        length = self._length(sizes)
        if length is not None:
            return self._split(length).for_sizes(sizes)
        knobs = self._knobs
        if self._options.autotune and not self._options.interpret and may_run_twice(self.kernel):
            knobs = self._tuned(sizes, arguments)
        return self._plan(sizes, knobs)

    def _run(self, plan: _Plan, tensors: tuple[Any, ...], sizes: tuple[int, ...]) -> None:
        if plan.programs == 0:
            return
        if self._options.interpret:
            self._interpret(plan, (*tensors, *sizes))
            return
        pointers = [tensor.data_ptr() for tensor in tensors]
        together = 0
        for pointer in pointers:
            together |= pointer
        loaded = plan.aligned if together & 15 == 0 else None
        if loaded is None:
            aligned = tuple(pointer % 16 == 0 for pointer in pointers)
            loaded = self._load(plan.layout, aligned, sizes)
            plan.aligned = loaded if all(aligned) else plan.aligned
        error = launch_hooks.launch(loaded, plan.programs, (*pointers, *sizes))
        if error:
            raise KernelError(f"{self._where()}: launch failed: {error}")

    def _length(self, sizes: tuple[int, ...]) -> int | None:
        """Return into chunks of which length the rows are split at a call; None for not at all."""
        if self._is_part:
            return None
        if self._options.chunk:
            return self._options.chunk if can_split(self.kernel) else None
        return chunk_length(self.kernel, dict(zip(self._symbols, sizes, strict=True)))

    def _split(self, length: int) -> _Parts:
        if length not in self._parts:
            self._parts[length] = _Parts(
                self, split(self.kernel, length), self._buffers, self._options, self._setting
            )
        return self._parts[length]

    def _plan(self, sizes: tuple[int, ...], knobs: Knobs) -> _Plan:
        values = dict(zip(self._symbols, sizes, strict=True))
        layout = layout_of(self.kernel, values, knobs)
        blocks = (-(-number_of(axis.numel, values) // axis.block) for axis in layout.grid)
        return _Plan(layout, math.prod(blocks))

    def _tuned(self, sizes: tuple[int, ...], arguments: tuple[Any, ...]) -> Knobs:
        """Return the fastest deviation from the rules, found before or now."""
        plan = self._plan(sizes, self._knobs)
        if plan.programs == 0:
            return self._knobs
        key = key_of(self._source(plan.layout), self._device)
        found = recall(key, self._knobs)
        if found is None:
            tensors = arguments[: self._pointers]
            tried = [replace(self._knobs, block=block, warps=warps) for block, warps in TRIED]
            found = best_of(
                (knobs, partial(self._run, self._plan(sizes, knobs), tensors, sizes))
                for knobs in tried
            )
            keep(key, found)
        return found

    def _interpret(self, plan: _Plan, arguments: tuple[Any, ...]) -> None:
        function = self._function(plan.layout)
        try:
            triton_launch.interpret(function, plan.programs, arguments, debug=self._options.debug)
        except Exception as error:
            cause = error.__cause__ or error
            raise KernelError(f"{self._where()}: {cause}") from error

    def _source(self, layout: Layout) -> str:
        found = self._sources.get(layout)
        if found is None:
            found = self._sources[layout] = kernel_source(
                self.kernel,
                layout,
                self._extents,
                debug=self._options.debug,
                exact=self._setting.exact,
            )
        return found

    def _function(self, layout: Layout) -> Any:
        """Return the function of a layout, for the interpreter."""
        if layout not in self._functions:
            name = function_name(self.kernel)
            file = f"<ctk {name} {next(_NUMBERS)}>"
            self._functions[layout] = triton_launch.function_of(self._source(layout), name, file)
        return self._functions[layout]

    def _load(
        self, layout: Layout, aligned: tuple[bool, ...], sizes: tuple[int, ...]
    ) -> cuda_launch.Loaded:
        every = (*aligned, *(size % 16 == 0 for size in sizes))
        key = "binary", layout, every
        if key not in self._loaded:
            types = self.argument_types(layout)
            try:
                code = self.compiled(layout, every, capability_of(self._device))
                self._loaded[key] = cuda_launch.Loaded(code, self._device, types)
            except CodegenUnsupported:
                raise
            except Exception as error:
                raise KernelError(f"{self._where()}: Triton failed: {error}") from error
        return self._loaded[key]

    def compiled(
        self, layout: Layout, aligned: tuple[bool, ...], capability: int
    ) -> cuda_launch.MachineCode:
        """Return a variant for a kind of device (capability 90 for 9.0); no device is needed.

        `aligned` is whether each argument is a multiple of 16. A loop has fewer iterations under
        way if they do not fit into shared memory.

        Raises:
            CodegenUnsupported: Not even one fits.
        """
        source, name = self._source(layout), function_name(self.kernel)
        options, types = self._compile_options(layout), self.argument_types(layout)
        for stages in range(layout.stages, 0, -1):
            own = {**options, "num_stages": stages}
            code = machine_code(Function(source, name, types, aligned, capability, own))
            if code.shared <= _SHARED.get(capability, _LEAST_SHARED):
                return code
        raise CodegenUnsupported(
            f"the blocks of {self._where()} do not fit into the shared memory of sm_{capability}"
        )

    def argument_types(self, layout: Layout) -> tuple[str, ...]:
        """Return the types of the arguments, as Triton writes them."""
        size = "i64" if layout.wide else "i32"
        return (*self._types, *(size for _ in self._symbols))

    def _expected(self) -> Layout:
        return self.layout_for(tuple(self._guess.values()))

    def _compile_options(self, layout: Layout) -> dict[str, object]:
        options: dict[str, object] = {
            "num_warps": layout.warps,
            "debug": self._options.debug,
            "sanitize_overflow": False,
            "enable_reflect_ftz": False,  # libdevice keeps subnormal numbers, as eager does
        }
        rounds = self._setting.exact or takes_exp_of_difference(self.kernel)
        return {**options, "enable_fp_fusion": False} if rounds else options

    def _where(self) -> str:
        return f"kernel {self.kernel.name} of [{', '.join(self.kernel.nodes)}]"


def takes_exp_of_difference(kernel: Kernel) -> bool:
    """Return whether a kernel takes the exponential of a difference, as a softmax does.

    In `exp(x * c - m)` the product has to be rounded as it was for the maximum `m`: unrounded, a
    large one may exceed `m` by enough for an infinite result. Kernels of attention are not meant,
    which take scores of any size for smaller than that.
    """
    if isinstance(kernel, Attention):
        return False
    return any(
        isinstance(value, Op) and value.name == "exp" and _is_difference(value.args[0])
        for sweep in kernel.sweeps
        for value in walk(*sweep.statements)
    )


def _is_difference(value: Value) -> bool:
    return isinstance(value, Op) and value.name == "sub"


def capability_of(device: int) -> int:
    """Return the compute capability of a device, 90 for 9.0."""
    major, minor = torch.cuda.get_device_capability(device)
    return major * 10 + minor
