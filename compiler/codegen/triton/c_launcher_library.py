"""The launcher of kernels in C, compiled once per process, while Triton compiles kernels.

Without a C compiler kernels are launched from Python, which is logged once.
"""

import logging
import tempfile
import threading
from functools import cache
from pathlib import Path

from ctk.compiler.codegen.c.toolchain import compile_together, find_compiler
from ctk.compiler.errors import ArtifactError, CodegenUnsupported
from ctk.compiler.observe import first_line
from ctk.compiler.posix import hold_in_forks
from ctk.compiler.runtime.c_kernels import Library, load_library
from ctk.compiler.torch_compat.gpu.c_launcher import SOURCE, CLauncher
from ctk.compiler.usercode.process_name import process_name

log = logging.getLogger("ctk.codegen")

_FLAGS = ("-O2", "-std=gnu11", "-fPIC", "-shared", "-w")

_lock = threading.Lock()
hold_in_forks(_lock)


def start_launcher() -> None:
    """Begin to compile the launcher in a thread, unless it is compiled."""
    if not _compile.cache_info().currsize:
        threading.Thread(target=launcher_library, name="ctk-launcher").start()


def launcher_library() -> Library | None:
    """Return the library of the launcher; None if it cannot be made here."""
    with _lock:
        return _compile()


@cache
def c_launcher() -> CLauncher | None:
    """Return the launcher; None if it cannot be made here."""
    library = launcher_library()
    return None if library is None else CLauncher(library.with_python(), library)


@cache
def _compile() -> Library | None:
    try:
        return compile_launcher(SOURCE.read_text(encoding="utf-8"))
    except (CodegenUnsupported, ArtifactError) as error:
        log.warning("kernels are launched from Python, which is slower: %s", first_line(error))
        return None


def compile_launcher(source: str) -> Library:
    """Return the library of a launcher.

    Raises:
        CodegenUnsupported: There is no C compiler, or it does not take the code.
        ArtifactError: The system cannot load the library.
    """
    with tempfile.TemporaryDirectory(prefix=f"ctk-launcher-{process_name()}-") as folder:
        path, target = Path(folder, "launcher.c"), Path(folder, "launcher.so")
        path.write_text(source, encoding="utf-8")
        command = (*find_compiler(), *_FLAGS)
        compile_together([path], target, command, "the launcher of kernels")
        return load_library(target.read_bytes())
