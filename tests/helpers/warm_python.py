"""An interpreter for tests that starts in milliseconds: torch and Inductor are imported already.

`warm_python()` is the path of an executable to use like `sys.executable`. All test processes of one
run share one server (warm_server.py), which ends when the run does.
"""

import fcntl
import os
import sys
import tempfile
import time
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from tests.helpers.project import ROOT

START_SECONDS = 120

CLIENT = """#!{python} -SE
import sys
sys.path.insert(0, {root!r})
from tests.helpers.warm_client import main
main({address!r})
"""


def owner() -> int:
    """Return the process that ends last: pytest itself, or the parent of its workers."""
    return os.getppid() if "PYTEST_XDIST_WORKER" in os.environ else os.getpid()


@cache
def warm_python() -> Path:
    """Return the interpreter; the first test that asks starts the server."""
    folder = Path(tempfile.gettempdir(), f"ctk-warm-{os.getuid()}-{owner()}")
    folder.mkdir(mode=0o700, exist_ok=True)
    address = folder / "socket"
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not address.exists():
            start(folder, address)
    return folder / "bin" / "python"


def run_repros_warm(patch: pytest.MonkeyPatch) -> None:
    """Run emitted repros where torch is imported already."""
    from ctk.toolkit.repro import bare, run

    clean = run.run_repro

    def run_warm(path: Path, **more: Any) -> run.ReproRun:
        return clean(path, **{"python": str(warm_python()), **more})

    patch.setattr(run, "run_repro", run_warm)
    patch.setattr(bare, "run_repro", run_warm)


def start(folder: Path, address: Path) -> None:
    """Start the server and write the executables `python` and `ctk` that lead to it."""
    bin_folder = folder / "bin"
    bin_folder.mkdir(exist_ok=True)
    text = CLIENT.format(python=sys.executable, root=str(ROOT), address=str(address))
    run_ctk = "sys.argv[1:1] = ['-c', 'from ctk.toolkit.cli.main import main; main()']\n"
    for name, added in (("python", ""), ("ctk", run_ctk)):
        executable = bin_folder / name
        executable.write_text(text.replace("main(", f"{added}main(") if added else text)
        executable.chmod(0o700)
    environ = {
        **os.environ,
        "PYTHONPATH": str(ROOT),
        "PYTORCH_NVML_BASED_CUDA_CHECK": "1",  # looking for CUDA must not start it: forks inherit
        "TORCHINDUCTOR_COMPILE_THREADS": "1",  # no pool: threads and forks do not go together
    }
    command = [sys.executable, "-W", "ignore", "-m", "tests.helpers.warm_server"]
    log = folder / "log"
    server = os.posix_spawn(
        sys.executable,
        [*command, str(address), str(owner())],
        environ,
        file_actions=[
            (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
            (os.POSIX_SPAWN_OPEN, 1, str(log), os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600),
            (os.POSIX_SPAWN_DUP2, 1, 2),
        ],
        setpgroup=0,
    )
    deadline = time.monotonic() + START_SECONDS
    while not address.exists():
        has_ended = os.waitpid(server, os.WNOHANG)[0] != 0
        assert not has_ended and time.monotonic() < deadline, log.read_text()
        time.sleep(0.02)
