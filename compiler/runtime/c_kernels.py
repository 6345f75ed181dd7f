"""Kernels in shared libraries: load them from memory, launch them, store them.

A library is loaded from an anonymous file in memory if the system has such (Linux): nothing is left
on disk, no temporary folder must allow code, and the checked bytes are the loaded ones. Elsewhere
it is a temporary file, removed at once.

A kernel with checks returns the number of the check that failed, or 0. The launcher raises eager's
exception for a position out of range; a load or store out of range of its buffer is a fault of the
compiler, and its message names the kernel, the node and the buffer.
"""

import ctypes
import hashlib
import itertools
import os
import tempfile
import threading
import weakref
from _ctypes import dlclose
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ctk.compiler.errors import ArtifactError
from ctk.compiler.posix import hold_in_forks
from ctk.compiler.records import INTEGER, TEXT, record, row, sequence
from ctk.compiler.runtime.stored_kernels import Blobs, StoredKernel


@dataclass(frozen=True, slots=True)
class Check:
    """A check of a kernel at run time.

    Attributes:
        kind: "position" (in the user's data), "load" or "store" (of the compiler).
        buffer: Buffer that is read or written; empty for positions.
        node: The node of the graph that computes the value.
    """

    kind: str
    buffer: str = ""
    node: str = ""


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class Library:
    """A loaded shared library, unloaded with the last of its functions.

    Attributes:
        digest: SHA-256 of the file, in hex.
    """

    binary: bytes = field(repr=False)
    digest: str
    handle: ctypes.CDLL

    def with_python(self) -> ctypes.PyDLL:
        """Return its functions that call Python: they keep the interpreter lock."""
        return ctypes.PyDLL(None, handle=self.handle._handle)


@dataclass(frozen=True, slots=True)
class CKernel:
    """A kernel that is a function of a library.

    Attributes:
        pointers: Number of its addresses.
        sizes: Number of the integers after them.
        checks: Its checks, numbered from 1; empty if it returns nothing.
        fault_reader: Function that returns the check that failed, and the number that it checked.
    """

    function: str
    pointers: int
    sizes: int
    checks: tuple[Check, ...]
    kernel: str
    fault_reader: str = "read_last_fault"

    def launcher(self, library: Library) -> Callable[..., None]:
        """Return a function that runs it: addresses, then sizes.

        Raises:
            ArtifactError: The library has no such function.
        """
        handle = library.handle
        try:
            function = handle[self.function]
        except AttributeError as error:
            raise ArtifactError(f"a library has no function {self.function}") from error
        function.argtypes = [ctypes.c_void_p] * self.pointers + [ctypes.c_int64] * self.sizes
        function.restype = ctypes.c_int64 if self.checks else None
        checks, name = self.checks, self.kernel
        last_fault = handle[self.fault_reader] if checks else None

        def launch(*given: int) -> None:
            if function(*given):
                fault = (ctypes.c_int64 * 3)()
                assert last_fault is not None
                last_fault(fault)
                check, index, size = fault
                raise fault_error(checks[check - 1], name, index, size)

        run = launch if checks else function
        vars(run)["library"] = library  # which lives as long as the launcher
        return run

    def stored(self, library: str, binary: bytes | memoryview) -> StoredKernel:
        """Return it as data, with the name of its library among the blobs, and the library."""
        return StoredKernel({"library": library, **_KERNEL.write(self)}, {library: binary})


_KERNEL = record(
    CKernel,
    function=TEXT,
    pointers=INTEGER,
    sizes=INTEGER,
    checks=sequence(row(Check, kind=TEXT, buffer=TEXT, node=TEXT)),
    kernel=TEXT,
    fault_reader=TEXT,
)


def load_kernels(stored: Sequence[Any], blobs: Blobs) -> list[Callable[..., None]]:
    """Return the launchers of kernels that `CKernel.stored` has stored.

    A library is checked once, however many kernels it has.

    Raises:
        ArtifactError: A library, or a function, is missing or cannot be loaded.
    """
    names = dict.fromkeys(data["library"] for data in stored)
    libraries = {name: load_library(blobs[name]) for name in names}
    return [_KERNEL.read(data).launcher(libraries[data["library"]]) for data in stored]


_loaded: weakref.WeakValueDictionary[str, Library] = weakref.WeakValueDictionary()
_lock = threading.Lock()
_NUMBERS = itertools.count(1)
hold_in_forks(_lock)


def load_library(binary: bytes | memoryview) -> Library:
    """Load a shared library, or return it if it is loaded.

    Raises:
        ArtifactError: The system cannot load it.
    """
    digest = hashlib.sha256(binary).hexdigest()
    with _lock:
        library = _loaded.get(digest)
        if library is None:
            library = _loaded[digest] = Library(bytes(binary), digest, _open_library(binary))
            handle = library.handle._handle
            weakref.finalize(library, dlclose, handle).atexit = False  # the only name it has
    return library


def _open_library(binary: bytes | memoryview) -> ctypes.CDLL:
    try:
        memory = os.memfd_create("ctk-kernels", os.MFD_CLOEXEC)
        with os.fdopen(memory, "wb") as file:
            file.write(binary)
            file.flush()
            return ctypes.CDLL(f"/proc/self{_new_path()}/fd/{memory}")
    except (AttributeError, OSError):  # another system, or it is forbidden
        return _open_by_file(binary)


def _new_path() -> str:
    """Return another path of a folder, `/././/`..., from which no library was loaded before.

    The loader takes a library of a known path for the same one, and file numbers are reused.
    """
    bits = f"{next(_NUMBERS):b}"
    return "".join("/." if bit == "1" else "/" for bit in bits)


def _open_by_file(binary: bytes | memoryview) -> ctypes.CDLL:
    with tempfile.TemporaryDirectory(prefix="ctk-c-") as folder:
        path = Path(folder, "kernels.so")
        path.write_bytes(binary)
        try:
            return ctypes.CDLL(str(path))
        except OSError as error:  # no code may run from such a folder, or OpenMP is missing
            raise ArtifactError(
                f"compiled kernels cannot be loaded: {error}\n"
                "next: let TMPDIR name a folder from which code may run; if a library is missing, "
                "install the torch that they were compiled with, or compile again"
            ) from error


def fault_text(check: Check, kernel: str, index: object, size: object) -> str:
    """Return the message of a failed check: eager's for positions, the compiler's for others."""
    if check.kind == "position":
        where = f"(node {check.node}, kernel {kernel})"
        return f"index {index} is out of bounds for a dimension of size {size} {where}"
    done = "reads" if check.kind == "load" else "writes"
    return (
        f"kernel {kernel} {done} element {index} of the buffer {check.buffer}, which has {size}, "
        f"for the node {check.node or '?'}: its index arithmetic is wrong"
    )


def fault_error(check: Check, kernel: str, index: int, size: int) -> Exception:
    """Return the exception for a failed check: eager's for positions, the compiler's for others."""
    text = fault_text(check, kernel, index, size)
    return IndexError(text) if check.kind == "position" else RuntimeError(text)
