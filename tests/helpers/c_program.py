"""A C program that calls packages (`tests/c_api/call.c`), compiled and run without Python."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from ctk.compiler.packages.c_api import FOLDER, SOURCE
from ctk.compiler.packages.c_wrapper.entries import DTYPES

_PROGRAM = Path(__file__).parent.parent / "c_api" / "call.c"
_TYPES = {code: dtype for dtype, (_, code) in DTYPES.items()}


@dataclass(frozen=True, slots=True)
class Called:
    """What a run of the program gave.

    Attributes:
        outputs: Of each thread.
        status: `ctk_status`; 0 if it went well.
        message: Of the error.
        stderr: What was printed there.
    """

    outputs: tuple[tuple[torch.Tensor, ...], ...]
    status: int
    message: str
    stderr: str


def compile_program(folder: Path, *flags: str) -> Path:
    """Compile the program, with every warning an error."""
    target = folder / "call"
    strict = ("-std=c11", "-Wall", "-Wextra", "-Werror", "-O1", "-g")
    files = (str(_PROGRAM), str(SOURCE))
    done = subprocess.run(
        ["cc", *strict, *flags, "-I", str(FOLDER), *files, "-o", str(target), "-ldl", "-pthread"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return target


def call(
    program: Path,
    package: Path,
    inputs: Sequence[torch.Tensor | float | bool],
    *,
    entry: str = "forward",
    weights: Mapping[str, torch.Tensor] | None = None,
    torch_library: str | None = None,
    calls: int = 1,
    threads: int = 1,
    before: Sequence[str] = (),
    environment: Mapping[str, str] | None = None,
) -> Called:
    """Run the program in a folder of its own, with tensors from files."""
    folder = package.with_suffix(".run")
    folder.mkdir(exist_ok=True)
    lines = [
        f"weight {name} {_line(each, folder / name)}" for name, each in (weights or {}).items()
    ]
    tensors = map(_tensor, inputs)
    lines += [f"input {_line(each, folder / f'input_{n}')}" for n, each in enumerate(tensors)]
    library = torch_library or str(Path(torch.__file__).parent / "lib" / "libtorch_cpu.so")
    own = {"PATH": os.environ["PATH"], "OMP_NUM_THREADS": "1", **(environment or {})}
    done = subprocess.run(
        [*before, str(program), str(package), entry, library, str(calls), str(threads)],
        input="\n".join(lines), cwd=folder, env=own, capture_output=True, text=True, check=False,
        timeout=250,
    )  # fmt: skip
    told = done.stdout.strip()
    if told.startswith("error "):
        _, status, message = told.split(" ", 2)
        assert done.returncode == int(status)
        return Called((), int(status), message, done.stderr)
    assert done.returncode == 0, (done.returncode, done.stdout, done.stderr)
    outputs = tuple(
        tuple(_read(line, folder / f"output_{n}_{at}") for at, line in enumerate(told.splitlines()))
        for n in range(threads)
    )
    return Called(outputs, 0, "", done.stderr)


def _tensor(value: torch.Tensor | float | bool) -> torch.Tensor:
    """Return a number as the tensor that stands for it: int64, float64 or bool."""
    if isinstance(value, torch.Tensor):
        return value
    return torch.tensor(value, dtype=torch.float64 if isinstance(value, float) else None)


def _line(tensor: torch.Tensor, path: Path) -> str:
    """Write the elements of a tensor as they lie, and return the line that describes it."""
    nbytes = 0
    if tensor.numel():
        steps = zip(tensor.shape, tensor.stride(), strict=True)
        count = 1 + sum((size - 1) * stride for size, stride in steps)
        flat = tensor.detach().as_strided((count,), (1,)).view(torch.uint8)
        path.write_bytes(flat.numpy().tobytes())
        nbytes = flat.numel()
    else:
        path.write_bytes(b"")
    numbers = (DTYPES[tensor.dtype][1], tensor.dim(), *tensor.shape, *tensor.stride())
    return f"{' '.join(map(str, numbers))} {path} {nbytes}"


def _read(line: str, path: Path) -> torch.Tensor:
    code, _, *sizes = map(int, line.split())
    data = bytearray(path.read_bytes())
    if not data:
        return torch.empty(sizes, dtype=_TYPES[code])
    return torch.frombuffer(data, dtype=torch.uint8).view(_TYPES[code]).reshape(sizes)
