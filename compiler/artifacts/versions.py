"""Versions of ctk and its tools, and the machine that they make code for, as parts of a cache key.

The version of ctk is the digest of its own files, so that an edited checkout never uses an entry of
another one.
"""

import hashlib
import os
import platform
import subprocess
import sys
from collections.abc import Sequence
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from io import FileIO
from pathlib import Path

import torch

import ctk.compiler
from ctk.compiler.codegen.c.toolchain import find_compiler
from ctk.compiler.errors import CodegenUnsupported
from ctk.compiler.torch_compat.gpu import cuda_launch

_READ_BY_TOOLS = (
    "COMPILER_PATH", "CPATH", "C_INCLUDE_PATH", "CTK_GEN_PATTERNS", "GCC_EXEC_PREFIX",
    "LIBRARY_PATH", "OMP_WAIT_POLICY", "SDKROOT",
)  # fmt: skip

_TRITON_PLACES = ("TRITON_CACHE_DIR", "TRITON_DUMP_DIR", "TRITON_HOME", "TRITON_OVERRIDE_DIR")


def version_parts() -> dict[str, str]:
    """Return a part of the key for each program and package that takes part in a compile."""
    return {
        "version.ctk": _own_text(),
        "version.python": f"{platform.python_implementation()} {sys.version}",
        "version.torch": f"{torch.__version__} {torch.version.git_version} {torch.version.cuda}",
        "version.triton": version_of("triton"),
        "version.sympy": version_of("sympy"),
        "version.C compiler": _compiler(),
        "environment": _environment(),
    }


def machine_parts(devices: Sequence[torch.device]) -> dict[str, str]:
    """Return a part of the key for the processor, and for each GPU among the devices."""
    parts = {"machine.cpu": _processor()}
    for device in devices:
        if device.type != "cpu":
            parts[f"machine.{device}"] = cuda_launch.describe_target(device)
    return parts


@cache
def _own_text() -> str:
    root = str(Path(ctk.compiler.__file__).parent)
    total = hashlib.sha256()
    for folder, folders, names in os.walk(root):
        folders.sort()
        for name in sorted(names):
            if name.endswith((".py", ".c", ".h")):
                with FileIO(f"{folder}/{name}") as file:  # takes half of the time of a Path
                    data = file.read()
                total.update(f"{folder[len(root) :]} {name} {len(data)}\n".encode())
                total.update(data)
    return total.hexdigest()


@cache
def version_of(package: str) -> str:
    """Return the version of an installed package; `none` if it is not installed."""
    try:
        return version(package)
    except PackageNotFoundError:
        return "none"


def _compiler() -> str:
    try:
        return _says(find_compiler())
    except CodegenUnsupported:
        return "none"


@cache
def _says(command: tuple[str, ...]) -> str:
    """Return the command of a compiler, and the version that it prints."""
    try:
        asked = [*command, "--version"]
        done = subprocess.run(asked, capture_output=True, text=True, timeout=30, check=False)
    except (OSError, subprocess.SubprocessError) as error:
        return f"{' '.join(command)}: {error}"
    told = (done.stdout.strip() or done.stderr.strip()).splitlines()
    return f"{' '.join(command)}: {told[0] if told else done.returncode}"


@cache
def _processor() -> str:
    """Return the features of the processor: `-march=native` makes code for them."""
    lines = [platform.system(), platform.machine(), torch.backends.cpu.get_cpu_capability()]
    try:
        told = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        told = [platform.processor()]
    wanted = ("flags", "Features", "model name", "CPU part", "cpu family", "model\t")
    lines += sorted({line for line in told if line.startswith(wanted)})
    digest = hashlib.sha256("\n".join(lines).encode()).hexdigest()
    return f"{lines[0]} {lines[1]} {lines[2]} {digest}"


def _environment() -> str:
    """Return the variables that change the output of the generators' tools."""
    named = [name for name in os.environ if name.startswith("TRITON_")]
    wanted = sorted({*_READ_BY_TOOLS, *named}.difference(_TRITON_PLACES))
    return " ".join(f"{name}={os.environ[name]}" for name in wanted if name in os.environ)
