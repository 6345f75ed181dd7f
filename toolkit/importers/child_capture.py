"""Capture a program in a child process, because its eager call may break CUDA for the process.

    this process                            capture_worker.py
    program and options      -- stdin ->    load and capture it; save each graph before its call
    saved cases              <- folder --   end with 0, or with `LOST_CUDA`

A failed assertion in a program's own eager call (an index out of range) is a result of the program
to compare with. Captured in this process, it would leave no CUDA for that.
"""

import json
import subprocess
import sys
from dataclasses import asdict, dataclass
from pathlib import Path

import torch

from ctk.compiler.errors import EagerError
from ctk.toolkit.case.case import Case
from ctk.toolkit.case.formats.files import temporary_folder
from ctk.toolkit.case.store import load_case
from ctk.toolkit.options import CaseOptions
from ctk.toolkit.processes.accelerator import LOST_CUDA
from ctk.toolkit.processes.scratch import scratch_root
from ctk.toolkit.processes.warm import child_environment


@dataclass(frozen=True, slots=True)
class CaptureArguments:
    """The arguments of `capture_cases` as JSON; cases are saved in `folder`."""

    spec: str
    folder: str
    target: str
    config: dict[str, object] | None
    backward: bool
    dynamic: bool


def needs_child(request: CaseOptions) -> bool:
    """Return whether a program has to be captured in a child: this process uses CUDA."""
    return request.isolate is True and torch.cuda.is_initialized()


def capture_in_child(spec: str, request: CaseOptions) -> list[Case] | None:
    """Return the cases of a program up to and including the graph whose eager call breaks CUDA.

    Returns:
        At least one case; None if the child ends in another way, which the caller then repeats.

    Raises:
        EagerError: CUDA breaks before a graph is called.
    """
    with temporary_folder("ctk-capture-", scratch_root()) as folder:
        config = dict(request.config) if request.config is not None else None
        how = (request.target or "ctk", config, request.backward, request.dynamic)
        status = _run(CaptureArguments(spec, str(folder), *how))
        saved = sorted(folder.glob("graph*"), key=lambda path: int(path.name[len("graph") :]))
        cases = [load_case(path, trust=True) for path in saved]
    if status == LOST_CUDA and not cases:
        raise EagerError(f"{Path(spec).name}: a kernel of its eager call breaks CUDA")
    return cases if status in (0, LOST_CUDA) else None


def _run(asked: CaptureArguments) -> int:
    command = [sys.executable, "-m", "ctk.toolkit.importers.capture_worker"]
    text = json.dumps(asdict(asked)).encode()
    return subprocess.run(command, input=text, env=child_environment(), check=False).returncode
