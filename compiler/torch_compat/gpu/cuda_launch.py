"""Kernels in machine code for GPUs: loaded and launched by CUDA's driver, without Triton.

Triton's own launch works out the type and the alignment of each argument and takes 10 microseconds
or more. Here a kernel is launched as it was compiled, by `cuLaunchKernel`.
"""

# pyright: reportPrivateUsage=false, reportAttributeAccessIssue=false

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from threading import Lock
from typing import Any

import torch

_NO_CONTEXT = 201
"""The driver's error in a thread that has not called CUDA's runtime yet."""

_SHARED_WITHOUT_ASKING = 48 << 10
_MAX_DYNAMIC_SHARED = 8
"""`CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES`."""


class CudaError(Exception):
    """A call of the driver failed."""


@dataclass(frozen=True, slots=True)
class MachineCode:
    """A kernel compiled for one kind of device.

    Attributes:
        shared: Bytes of shared memory.
        hidden: Pointers to scratch memory that follow the arguments.
    """

    name: str
    cubin: bytes
    shared: int
    threads: int
    hidden: int


class Loaded:
    """A kernel on a device, ready to be launched.

    Args:
        types: Of its arguments, as Triton writes them: `*fp32`, `i32`, `i64`. The machines of CUDA
            have their low bytes first, so that each has a slot of 64 bits.

    Raises:
        CudaError: The driver does not take it.
    """

    def __init__(self, code: MachineCode, device: int, types: Sequence[str]) -> None:
        with torch.cuda.device(device):
            torch.cuda.current_stream().query()  # makes the context
            self._handle = _function_of(code)
            self.context = _current_context()
        self.name, self.function = code.name, self._handle.value or 0
        self.threads, self.shared, self.hidden = code.threads, code.shared, code.hidden
        self.device = device
        self._values = (ctypes.c_uint64 * len(types))()
        self._hidden = (ctypes.c_uint64 * code.hidden)()
        slots = [_slots_of(self._values), _slots_of(self._hidden)]
        every = [slot for part in slots for slot in part]
        self._parameters = (ctypes.c_void_p * len(every))(*every)
        self._lock = Lock()
        self._launch = _driver().cuLaunchKernel

    def launch(self, programs: int, stream: int, arguments: Sequence[int]) -> int:
        """Launch programs on the kernel's device; returns the driver's error, 0 for none."""
        if torch._C._cuda_getDevice() != self.device:
            with torch.cuda.device(self.device):
                return self.launch(programs, stream, arguments)
        with self._lock:
            self._values[:] = arguments
            code = self._queue(programs, stream)
            if code == _NO_CONTEXT:
                torch.cuda.current_stream(self.device).query()  # gives it the context
                code = self._queue(programs, stream)
            return code

    def _queue(self, programs: int, stream: int) -> int:
        return self._launch(
            self._handle, programs, 1, 1, self.threads, 1, 1, self.shared, stream,
            self._parameters, None,
        )  # fmt: skip


def _function_of(code: MachineCode) -> ctypes.c_void_p:
    """Load machine code into the current context; it stays there."""
    driver = _driver()
    module, function = ctypes.c_void_p(), ctypes.c_void_p()
    _check(driver.cuModuleLoadData(ctypes.byref(module), code.cubin), code.name)
    name = code.name.encode()
    _check(driver.cuModuleGetFunction(ctypes.byref(function), module, name), code.name)
    if code.shared > _SHARED_WITHOUT_ASKING:
        asked = driver.cuFuncSetAttribute(function, _MAX_DYNAMIC_SHARED, code.shared)
        _check(asked, code.name)
    return function


def _current_context() -> int:
    context = ctypes.c_void_p()
    _driver().cuCtxGetCurrent(ctypes.byref(context))
    return context.value or 0


def _check(error: int, name: str) -> None:
    if error:
        raise CudaError(f"the kernel {name} cannot be loaded: {error_text(error)}")


def current_stream(device: int) -> int:
    """Return the stream that torch works on, as a number."""
    return torch._C._cuda_getCurrentRawStream(device)


def stream_function() -> Any:
    """Return the function of a device's number that returns its current stream, as a number."""
    return torch._C._cuda_getCurrentRawStream


@cache
def launch_functions() -> ctypes.Array[ctypes.c_void_p]:
    """Return the addresses of the driver's functions that a launch in C calls."""
    names = ("cuLaunchKernel", "cuCtxGetDevice", "cuCtxPushCurrent_v2", "cuCtxPopCurrent_v2")
    found = [ctypes.cast(_driver()[name], ctypes.c_void_p).value for name in names]
    return (ctypes.c_void_p * len(names))(*found)


def error_text(code: int) -> str:
    """Return the meaning of an error code of the driver."""
    name = ctypes.c_char_p()
    _driver().cuGetErrorString(code, ctypes.byref(name))
    return name.value.decode() if name.value else f"error {code}"


def driver_version() -> int:
    """Return the version of CUDA that the driver knows: 12040 for 12.4; 0 if it does not say."""
    found = ctypes.c_int()
    _driver().cuDriverGetVersion(ctypes.byref(found))
    return found.value


def _slots_of(values: ctypes.Array[ctypes.c_uint64]) -> list[int]:
    """Return the address of each value: of its low bytes, where CUDA reads an `i32` as well."""
    return [ctypes.addressof(values) + 8 * number for number in range(len(values))]


@cache
def _driver() -> Any:
    """Return the CUDA driver; its calls keep the interpreter lock, as they only queue work."""
    library = ctypes.PyDLL("libcuda.so.1")
    unsigned = ctypes.c_uint
    library.cuLaunchKernel.argtypes = [
        ctypes.c_void_p, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
        ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p,
    ]  # fmt: skip
    library.cuModuleLoadData.argtypes = [ctypes.c_void_p, ctypes.c_char_p]
    library.cuModuleGetFunction.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_char_p]
    library.cuFuncSetAttribute.argtypes = [ctypes.c_void_p, ctypes.c_int, ctypes.c_int]
    for name in ("cuLaunchKernel", "cuModuleLoadData", "cuModuleGetFunction", "cuFuncSetAttribute"):
        library[name].restype = ctypes.c_int
    return library


def describe_target(device: torch.device) -> str:
    """Return name, capability, size and driver of a device."""
    if device.type != "cuda" or not torch.cuda.is_available():
        return device.type
    device_properties = torch.cuda.get_device_properties(device)
    facts = (
        device_properties.name,
        device_properties.major,
        device_properties.minor,
        device_properties.multi_processor_count,
        device_properties.total_memory,
    )
    return f"{' '.join(map(str, facts))} driver {driver_version()}"
