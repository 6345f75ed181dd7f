"""What runs on another machine: takes a case as bytes, and asks a child there.

    here   pack(case) -> bytes, question -> JSON
    there  RemoteWorker.answer(number, question, case) -> JSON

It knows nothing of the cluster that carries it (ray_cluster.py).
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
from ctk.toolkit.oracle.executors.protocol import ChildQuestion, Unwanted, failure_of
from ctk.toolkit.processes.scratch import scratch_root

_CASE = "case"

_TOLD = ("CTK_", "TORCH", "PYTORCH_", "TRITON_", "OMP_", "MKL_", "CUDA_LAUNCH_")
"""How variables begin that change what a compile does; another machine has others."""

_OF_THIS_MACHINE = ("TORCHINDUCTOR_CACHE_DIR", "TORCH_HOME", "CTK_OWNER", "CTK_CACHE_DIR")


def pack(case: Case) -> bytes:
    """Return the folder of a case, with all its values and the user's files, as an archive."""
    with temporary_folder("ctk-question-", scratch_root()) as folder:
        saved, data = save_case(case, folder / _CASE, inputs="full"), io.BytesIO()
        with tarfile.open(fileobj=data, mode="w") as archive:
            archive.add(saved, arcname=_CASE)
        return data.getvalue()


def surroundings() -> dict[str, str]:
    """Return the variables that let another machine compile as this process would.

    The number of threads decides the order of sums, so it is told in any case.
    """
    told = {
        name: value
        for name, value in os.environ.items()
        if name.startswith(_TOLD) and name not in _OF_THIS_MACHINE
    }
    path = os.pathsep.join(entry for entry in sys.path if entry)
    return {"OMP_NUM_THREADS": str(torch.get_num_threads()), **told, "PYTHONPATH": path}


def versions() -> str:
    """Return what must be the same on each machine, for answers to be the same."""
    python = f"{sys.version_info.major}.{sys.version_info.minor}"
    return f"torch {torch.__version__}, ctk {ctk_version()}, Python {python}"


class RemoteWorker:
    """Answers one question at a time; may be told meanwhile that an answer is not wanted.

    Args:
        timeout_seconds: As for `ChildProcess`.
        memory_nbytes: As for `ChildProcess`.
    """

    def __init__(self, timeout_seconds: float | None, memory_nbytes: int | None) -> None:
        self._executor = ChildProcess(timeout_seconds, memory_nbytes)
        self._changing = threading.Lock()
        self._number, self._unwanted = 0, 0

    def versions(self) -> str:
        """Return what must be the same on each machine."""
        return versions()

    def answer(self, number: int, question: str, case: bytes) -> str:
        """Return a judgement, or the failure to find one, as JSON.

        Args:
            number: Which question it is, from 1.
            question: As JSON, without folder; its time only where that is short.
            case: What `pack` gave.
        """
        with self._changing:
            self._number = number
            self._executor.want()
            is_wanted = self._unwanted < number
        try:
            if not is_wanted:
                raise Unwanted
            return self._answered(question, case)
        except Exception as error:
            return json.dumps(encode(failure_of(error)))

    def _answered(self, question: str, case: bytes) -> str:
        with temporary_folder("ctk-question-", scratch_root()) as folder:
            with tarfile.open(fileobj=io.BytesIO(case)) as archive:
                archive.extractall(folder, filter="data")
            asked = decode(ChildQuestion, question.encode(), where="question")
            asked = replace(asked, folder=str(folder / _CASE))
            found = self._executor.ask_saved(asked)
        return json.dumps(encode(found))

    def unwant(self, number: int) -> None:
        """End a question, if it is the one that is asked, or comes later."""
        with self._changing:
            self._unwanted = max(self._unwanted, number)
            if self._number == number:
                self._executor.unwant()

    def close(self) -> None:
        """End what was started here."""
        self._executor.close()
