"""A process that has imported torch and forks a child for each Python program that it is sent.

    test -> client (starts in milliseconds) -> this server -> guard -> job (the program)

The client passes its arguments, folder, environment and standard streams; the job runs with them
as `python ARGUMENTS` would, except that torch, Dynamo and Inductor are imported already. The guard
waits for the job, passes Ctrl-C on, and kills the job's process group when the client is gone. The
modules of ctk are imported too. A job that would find another ctk, a copy of the project or none,
forgets them first.

What a job does not see: variables that torch reads when it is imported, and flags of the
interpreter. Tests about these, or about a clean process, start a fresh interpreter.
"""

import array
import atexit
import contextlib
import gc
import importlib
import json
import os
import runpy
import select
import shutil
import signal
import socket
import sys
import tempfile
import threading
from pathlib import Path
from typing import Any

POLL_SECONDS = 0.5
PRELOADED = ("ctk.compiler.pipeline", "ctk.toolkit.cli.app", "ctk.toolkit.operations.diagnose")
"""What the commands import: a second of processor time for each job."""

STREAMS = (0, 1, 2)
IGNORED_FLAGS = ("-u", "-B")


def serve(address: str, owner: int) -> None:
    """Take jobs until the process `owner` has ended; return only in a job, to run it."""
    from ctk.compiler.torch_compat.inductor import inductor_api as inductor

    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listener.bind(f"{address}.new")
    listener.listen(64)
    inductor.preload_compiler(inductor=True)
    for name in PRELOADED:
        importlib.import_module(name)
    gc.freeze()  # what is here now is never collected: a collection would write to every page
    Path(f"{address}.new").rename(address)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # guards need no waiting for
    while is_alive(owner):
        if not select.select([listener], [], [], POLL_SECONDS)[0]:
            continue
        client, _ = listener.accept()
        if os.fork() == 0:
            listener.close()
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            guard(client)
            return
        client.close()
    shutil.rmtree(Path(address).parent, ignore_errors=True)
    os._exit(0)


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def guard(client: socket.socket) -> None:
    """Start the job and see it through; return only in the job, ready to run the program."""
    request, streams = receive(client)
    job = os.fork()
    if job == 0:
        client.close()
        become(request, streams)
        return
    os.setpgid(job, job)
    for stream in streams:
        os.close(stream)
    status = wait(job, client)
    with contextlib.suppress(BrokenPipeError):
        client.sendall(json.dumps(os.waitstatus_to_exitcode(status)).encode())
    os._exit(0)


def receive(client: socket.socket) -> tuple[dict[str, Any], list[int]]:
    """Return what a client sent: one line of JSON, and its three standard streams."""
    ints = array.array("i")
    data, ancillary, _, _ = client.recvmsg(1 << 20, socket.CMSG_LEN(len(STREAMS) * ints.itemsize))
    for _, _, payload in ancillary:
        ints.frombytes(payload)
    while not data.endswith(b"\n"):
        data += client.recv(1 << 20)
    return json.loads(data), list(ints)


def wait(job: int, client: socket.socket) -> int:
    """Return the wait status of a job; interrupt or kill it when the client asks or is gone."""
    pause = 0.002
    while True:
        pid, status = os.waitpid(job, os.WNOHANG)
        if pid:
            return status
        if select.select([client], [], [], pause)[0]:
            message = client.recv(1)
            os.killpg(job, signal.SIGINT if message else signal.SIGKILL)
            if not message:
                return os.waitpid(job, 0)[1]
        pause = min(pause * 1.5, 0.02)


def become(request: dict[str, Any], streams: list[int]) -> None:
    """Make this process look like `python ARGUMENTS`, started where the client stands."""
    with contextlib.suppress(PermissionError):
        os.setpgid(0, 0)
    for number, stream in zip(STREAMS, streams, strict=True):
        os.dup2(stream, number)
        os.close(stream)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.chdir(request["cwd"])
    os.environ.clear()
    os.environ.update(request["environ"])
    tempfile.tempdir = None  # found once per process, by TMPDIR
    forget("tests")
    added = [entry for entry in os.environ.get("PYTHONPATH", "").split(os.pathsep) if entry]
    sys.path[:] = added + BARE_PATH
    sys.path_importer_cache.clear()
    forget_other_project()
    sys.dont_write_bytecode = bool(os.environ.get("PYTHONDONTWRITEBYTECODE"))
    sys.argv[:] = request["argv"]
    for entry in added:
        site = Path(entry) / "sitecustomize.py"
        if site.is_file():  # the interpreter runs the first one
            runpy.run_path(str(site))
            break
    if os.environ.get("WARM_CHILDREN"):  # what the program starts itself need not be clean either
        sys.executable = request["client"]


def forget_other_project() -> None:
    """Forget the modules of this ctk where an import would find another one, or none."""
    specs = (finder.find_spec("ctk", None) for finder in sys.meta_path)
    spec = next(filter(None, specs), None)
    if spec is None or not spec.origin or Path(spec.origin).resolve() != HERE:
        forget("ctk")


def forget(package: str) -> None:
    """Drop the modules of a package, and the operators that another copy of it defines again."""
    from torch.library import Library

    for name in [name for name in sys.modules if name.partition(".")[0] == package]:
        for value in vars(sys.modules.pop(name)).values():
            if isinstance(value, Library):
                value._destroy()


def run_program() -> None:
    """Run `sys.argv` as the interpreter would: `-c CODE ...`, `-m MODULE ...` or `FILE ...`."""
    while sys.argv[0] in IGNORED_FLAGS:
        del sys.argv[0]
    first, *rest = sys.argv
    is_safe = bool(os.environ.get("PYTHONSAFEPATH"))
    if first == "-c":
        sys.path[:0] = [] if is_safe else [""]
        forget_other_project()
        sys.argv[:] = ["-c", *rest[1:]]
        module = type(sys)("__main__")
        sys.modules["__main__"] = module
        exec(compile(rest[0], "<string>", "exec"), module.__dict__)
    elif first == "-m":
        sys.path[:0] = [] if is_safe else [str(Path.cwd())]
        forget_other_project()
        sys.argv[:] = rest
        runpy.run_module(rest[0], run_name="__main__", alter_sys=True)
    else:
        sys.path[:0] = [] if is_safe else [str(Path(first).resolve().parent)]
        forget_other_project()
        sys.argv[:] = [first, *rest]
        runpy.run_path(first, run_name="__main__")


def bare_path() -> list[str]:
    """Return the import path without the folder of the program and without PYTHONPATH."""
    added = {str(Path(entry).resolve()) for entry in os.environ.get("PYTHONPATH", "").split(":")}
    here = {str(Path.cwd()), ""}
    return [entry for entry in sys.path if entry not in added | here]


BARE_PATH = bare_path()
HERE = Path(__file__).resolve().parents[2] / "ctk" / "__init__.py"


def run_and_end() -> None:
    """Run the program and end as the interpreter does, but leave the memory to the system.

    Taking torch apart object by object would touch, and so copy, every page shared with the server.
    """
    status: object = 0
    try:
        run_program()
    except SystemExit as leaving:
        status = leaving.code
    except BaseException as error:
        sys.last_value = error  # as the interpreter does
        sys.excepthook(type(error), error, error.__traceback__)
        status = 130 if isinstance(error, KeyboardInterrupt) else 1
    if not isinstance(status, int | None):
        print(status, file=sys.stderr)
        status = 1
    threading._shutdown()
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit((status or 0) & 0xFF)


if __name__ == "__main__":
    serve(sys.argv[1], int(sys.argv[2]))
    run_and_end()
