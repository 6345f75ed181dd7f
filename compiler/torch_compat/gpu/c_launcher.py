"""Launches from C: one call per launch, which knows functions, grids, arguments and streams.

launch(x, y, s0)
    hooks                  Triton has some on launches: the launcher of Python, which calls them
    x.data_ptr(), ...      all multiples of 16; else the launcher of Python
    stream, device         torch's current stream, and the device of the kernel
    sizes                  the launch that is noted for them; none: Python prepares one
    cuLaunchKernel         an error: the launcher of Python, which tries again or raises
"""

from __future__ import annotations

import ctypes
import struct
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from ctk.compiler.torch_compat.gpu import cuda_launch

SOURCE = Path(__file__).parent / "launcher.c"

_HEAD = struct.Struct("=QQIIII")


class CLauncher:
    """The library of `SOURCE`; its owner unloads it, and must outlive the functions.

    Functions do not keep their launcher alive: hold it for the rest of the process.
    """

    def __init__(self, functions: ctypes.PyDLL, owner: object) -> None:
        self._make = functions.make_launcher
        self._make.restype = ctypes.py_object
        self._make.argtypes = [*[ctypes.py_object] * 5, *[ctypes.c_int] * 3, ctypes.c_void_p]
        self._owner = owner

    def function(
        self,
        python: Callable[..., None],
        prepare: Callable[..., bytes | None],
        device: int,
        pointers: int,
        sizes: int,
    ) -> Callable[..., None]:
        """Return a function of tensors and sizes that launches a kernel.

        Args:
            python: Does the same.
            prepare: Returns `note_launch` of the sizes; None if Python launches the kernel for
                these sizes.
        """
        calls = cuda_launch.launch_functions()
        stream_of = cuda_launch.stream_function()
        return self._make(
            python, prepare, stream_of, device, sys.modules, device, pointers, sizes, calls
        )


def note_launch(
    loaded: cuda_launch.Loaded, programs: int, sizes: Sequence[int], places: Sequence[int]
) -> bytes:
    """Return the launch of a kernel for some sizes and aligned addresses.

    Args:
        places: For each parameter, its number among the tensors and sizes of the call.
    """
    head = _HEAD.pack(
        loaded.function, loaded.context, programs, loaded.threads, loaded.shared, loaded.hidden
    )
    return head + struct.pack(f"={len(sizes) + len(places)}q", *sizes, *places)
