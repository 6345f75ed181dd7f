"""The worker on another machine: takes a case as bytes, and judges it in a child there.

here   pack(case) -> bytes, question -> JSON
there  RemoteWorker.answer(number, question, case) -> JSON
"""

import io
import json
import os
import sys
import tarfile
import threading
from dataclasses import replace

import torch

from ctk.toolkit.case.case import Case
from ctk.toolkit.case.formats.files import temporary_folder
from ctk.toolkit.case.formats.schema import decode, encode
from ctk.toolkit.case.manifest import ctk_version
from ctk.toolkit.case.store import save_case
from ctk.toolkit.oracle.executors.child import ChildProcess
from ctk.toolkit.oracle.executors.protocol import Cancelled, ChildQuestion, failure_of
from ctk.toolkit.processes.scratch import scratch_root

_CASE = "case"

_PREFIXES = ("CTK_", "TORCH", "PYTORCH_", "TRITON_", "OMP_", "MKL_", "CUDA_LAUNCH_")
"""Prefixes of variables that affect a compile, and may differ between machines."""

_OF_THIS_MACHINE = ("TORCHINDUCTOR_CACHE_DIR", "TORCH_HOME", "CTK_OWNER", "CTK_CACHE_DIR")


def pack(case: Case) -> bytes:
    """Return the folder of a case, with all its values and the user's files, as an archive."""
    with temporary_folder("ctk-question-", scratch_root()) as folder:
        saved, data = save_case(case, folder / _CASE, inputs="full"), io.BytesIO()
        with tarfile.open(fileobj=data, mode="w") as archive:
            archive.add(saved, arcname=_CASE)
        return data.getvalue()


def surroundings() -> dict[str, str]:
    """Return the variables with which another machine compiles as this process would.

    The number of threads, which decides the order of sums, is always among them.
    """
    variables = {
        name: value
        for name, value in os.environ.items()
        if name.startswith(_PREFIXES) and name not in _OF_THIS_MACHINE
    }
    path = os.pathsep.join(entry for entry in sys.path if entry)
    return {"OMP_NUM_THREADS": str(torch.get_num_threads()), **variables, "PYTHONPATH": path}


def versions() -> str:
    """Return the versions that must be equal on each machine."""
    python = f"{sys.version_info.major}.{sys.version_info.minor}"
    return f"torch {torch.__version__}, ctk {ctk_version()}, Python {python}"


class RemoteWorker:
    """Answers one question at a time, which another thread may cancel."""

    def __init__(self, timeout_seconds: float | None, memory_nbytes: int | None) -> None:
        self._executor = ChildProcess(timeout_seconds, memory_nbytes)
        self._changing = threading.Lock()
        self._number, self._cancelled = 0, 0

    def versions(self) -> str:
        """Return the versions that must be equal on each machine."""
        return versions()

    def answer(self, number: int, question: str, case: bytes) -> str:
        """Return a judgement or a failure as JSON.

        Args:
            question: As JSON, without folder; with its time limit only if that is short.
        """
        with self._changing:
            self._number = number
            self._executor.resume()
            is_wanted = self._cancelled < number
        try:
            if not is_wanted:
                raise Cancelled
            return self._judge(question, case)
        except Exception as error:
            return json.dumps(encode(failure_of(error)))

    def _judge(self, question: str, case: bytes) -> str:
        with temporary_folder("ctk-question-", scratch_root()) as folder:
            with tarfile.open(fileobj=io.BytesIO(case)) as archive:
                archive.extractall(folder, filter="data")
            asked = decode(ChildQuestion, question.encode(), where="question")
            asked = replace(asked, folder=str(folder / _CASE))
            found = self._executor.ask_saved(asked)
        return json.dumps(encode(found))

    def cancel(self, number: int) -> None:
        """Cancel a question that runs or comes later."""
        with self._changing:
            self._cancelled = max(self._cancelled, number)
            if self._number == number:
                self._executor.cancel()

    def close(self) -> None:
        """End the child."""
        self._executor.close()
