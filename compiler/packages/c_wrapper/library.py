"""The shared library of a package: the functions of its entry points, their kernels, the tables.

Each entry point is a file, so that kernels of two may have one name; one more holds the tables. An
entry point that C cannot run is described with the reason; its file holds its kernels only.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from ctk.compiler.codegen.c.libraries import beginning
from ctk.compiler.codegen.c.toolchain import command_with, compile_together
from ctk.compiler.packages.c_wrapper.description_tables import (
    description,
    require_known_sizes,
    run_function,
)
from ctk.compiler.packages.c_wrapper.entries import CEntry, NotInC, Weight
from ctk.compiler.packages.c_wrapper.prelude import prelude
from ctk.compiler.packages.c_wrapper.steps import calls_torch, fault_function, function_text
from ctk.compiler.torch_compat.process import c_shim
from ctk.compiler.usercode.process_name import process_name


def sources(
    entries: Sequence[CEntry], weights: Sequence[Weight], *, name: str, features: Sequence[str]
) -> tuple[dict[str, str], dict[str, str]]:
    """Return the files of a library by name, and why C cannot run an entry point, by its name.

    Args:
        name: The versions that made it: `ctk 0.1.0, torch 2.13.0`.

    Raises:
        NotInC: A weight is of a type that ctk.h does not have.
    """
    numbers = {weight.name: number for number, weight in enumerate(weights)}
    files: dict[str, str] = {}
    described: list[CEntry] = []
    for number, entry in enumerate(entries):
        function = run_function(number)
        try:
            text = _file_text(entry, function, numbers)
            described.append(entry)
        except NotInC as error:
            text = _kernels_text(entry, function)
            described.append(replace(entry, refusal=str(error)))
        files[f"entry_{number}.c"] = text
    needs_torch = any(calls_torch(each) for each in described if not each.refusal)
    version = c_shim.version() if needs_torch else ""
    tables = description(described, weights, made_by=name, torch_version=version, features=features)
    files["description.c"] = "\n".join((*beginning([tables], False), prelude(), tables))
    return files, {each.name: each.refusal for each in described if each.refusal}


def build(files: Mapping[str, str], flags: Sequence[str] = ()) -> bytes:
    """Compile the files of a library.

    Raises:
        CodegenUnsupported: There is no C compiler, or it rejects the code.
    """
    with tempfile.TemporaryDirectory(prefix=f"ctk-c-{process_name()}-") as folder:
        for name, text in files.items():
            Path(folder, name).write_text(text, encoding="utf-8")
        target = Path(folder, "package.so")
        paths = [Path(folder, name) for name in files]
        compile_together(paths, target, command_with(flags), "the C wrapper of a package")
        return target.read_bytes()


def _file_text(entry: CEntry, function: str, weights: Mapping[str, int]) -> str:
    if entry.refusal:
        raise NotInC(entry.refusal)
    require_known_sizes(entry)
    run = function_text(entry, function, weights)
    faults = [fault_function(code) for code in entry.kernels if code.checks]
    return _kernels_text(entry, function, [prelude(), *faults, run])


def _kernels_text(entry: CEntry, function: str, more: Sequence[str] = ()) -> str:
    """Return the file of an entry point's kernels, and more that calls them."""
    kernels = [code.text for code in entry.kernels]
    has_checks = any(code.checks for code in entry.kernels)
    names = [code.name for code in entry.kernels]
    names += ["read_last_fault"] if has_checks else []
    # Of two entry points, functions may be called alike; the library is one.
    own = "\n".join(f"#define {each} {function}_{each}" for each in names)
    before = beginning([*kernels, *more], has_checks)
    return "\n\n".join((own, *before, *kernels, *more)) + "\n"
