"""Compile C functions and load them, each once per process.

A bisection compiles the same graph again and again, and a model has many equal layers. So the
identity of a function is its text with local names numbered and without comments, the functions
that it calls, and the command that compiles it. Another printer, other flags or a planted fault
change the identity, and the function is compiled.
"""

import hashlib
import os
import tempfile
import threading
import time
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from ctk.compiler.codegen.c.faults import FAULT_TYPE, NOTE_FAULT
from ctk.compiler.codegen.c.functions import PREAMBLE, functions_for
from ctk.compiler.codegen.c.kernel_function import KernelCode
from ctk.compiler.codegen.c.toolchain import command_with, compile_files
from ctk.compiler.errors import ArtifactError, CodegenUnsupported
from ctk.compiler.phases import phase
from ctk.compiler.posix import hold_in_forks
from ctk.compiler.runtime.c_kernels import Library, load_library
from ctk.compiler.usercode.process_name import process_name

LIMIT = 1024
"""How many functions stay loaded for later compiles."""

_LARGE = 6000
"""More letters of C than this take so long to compile that it pays to do it in several files."""


@dataclass(frozen=True, slots=True)
class LoadedLibrary:
    """A function that can be called; `seconds` to compile it are 0 if it was loaded before."""

    library: Library
    name: str
    seconds: float


_kept: OrderedDict[str, LoadedLibrary] = OrderedDict()
"""The functions used last, by identity. A fork waits until none of them changes."""

_lock = threading.Lock()
hold_in_forks(_lock)


def load(codes: Sequence[KernelCode], flags: Sequence[str]) -> list[LoadedLibrary]:
    """Return functions, in order, compiled if need be.

    Raises:
        CodegenUnsupported: There is no C compiler, or it does not take the code.
    """
    command = command_with(flags)
    keys = [_key(code, command) for code in codes]
    found: dict[str, LoadedLibrary] = {}
    new: dict[str, KernelCode] = {}
    with _lock:
        for key, code in zip(keys, codes, strict=True):
            if key in _kept:
                _kept.move_to_end(key)
                found[key] = _kept[key]
            else:
                new.setdefault(key, code)
    made = dict(zip(new, _compiled(list(new.values()), command), strict=True))
    found |= {key: replace(function, seconds=0.0) for key, function in made.items()}
    with _lock:
        _kept.update((key, found[key]) for key in made)
        while len(_kept) > LIMIT:
            _kept.popitem(last=False)
    return [made.pop(key, found[key]) for key in keys]


def forget() -> None:
    """Drop all functions that are not bound."""
    with _lock:
        _kept.clear()


def file_text(codes: Sequence[KernelCode]) -> str:
    """Return the file of some functions: types, the functions that they call, they."""
    texts = [code.text for code in codes]
    return "\n\n".join((*beginning(texts, any(code.checks for code in codes)), *texts)) + "\n"


def beginning(texts: Sequence[str], has_checks: bool) -> list[str]:
    """Return the head of a file with some functions."""
    faults = [FAULT_TYPE, NOTE_FAULT] if has_checks else []
    return [PREAMBLE, *faults, *functions_for(texts)]


def _key(code: KernelCode, command: Sequence[str]) -> str:
    """Return the identity of a function: equal only for functions with equal code."""
    text = code.canonical()
    parts = (*command, *beginning([text], bool(code.checks)), text)
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()


def _compiled(codes: Sequence[KernelCode], command: Sequence[str]) -> list[LoadedLibrary]:
    if not codes:
        return []
    started = time.perf_counter()
    groups = _groups(codes)
    with tempfile.TemporaryDirectory(prefix=f"ctk-c-{process_name()}-") as folder:
        sources = [Path(folder, f"kernels_{number}.c") for number in range(len(groups))]
        for source, group in zip(sources, groups, strict=True):
            source.write_text(file_text(group), encoding="utf-8")
        named = [[code.name for code in group] for group in groups]
        with phase("lowered", "C compiler"):
            targets = compile_files(sources, command, named)
        libraries = [_opened(target) for target in targets]
    each = (time.perf_counter() - started) / sum(len(code.text) for code in codes)
    return [
        LoadedLibrary(library, code.name, each * len(code.text))
        for library, group in zip(libraries, groups, strict=True)
        for code in group
    ]


def _opened(path: Path) -> Library:
    try:
        return load_library(path.read_bytes())
    except ArtifactError as error:
        raise CodegenUnsupported(str(error)) from error


def _groups(codes: Sequence[KernelCode]) -> list[list[KernelCode]]:
    total = sum(len(code.text) for code in codes)
    count = min(os.cpu_count() or 1, len(codes), 1 + total // _LARGE)
    groups: list[list[KernelCode]] = [[] for _ in range(count)]
    before = 0
    for code in codes:
        groups[min(before * count // max(total, 1), count - 1)].append(code)
        before += len(code.text)
    return [group for group in groups if group]
