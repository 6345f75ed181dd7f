"""The warm process from which several workers are forked, started by `worker_client.Zygote`.

Workers (worker.py) in processes of their own would each import torch, which costs seconds and
hundreds of megabytes. The zygote imports it once. Its stdin is a socket: each message holds a
target and the three descriptors of a worker's standard streams; the zygote forks the worker and
answers with its process id.

    parent  -- socket -->  zygote (warm)  -- fork -->  worker 1 -- fork -->  child
       \\____________ pipes ___________________________/

It runs no operator and never initializes CUDA, so that it stays safe to fork. It ends, with its
workers, when the socket is closed.
"""

import contextlib
import os
import signal
import socket
import sys
import time
from functools import partial

from ctk.toolkit.oracle.executors import worker
from ctk.toolkit.processes.forks import fork_process
from ctk.toolkit.processes.groups import adopt_orphans, die_with_parent
from ctk.toolkit.processes.tree import find_descendants, kill_descendants
from ctk.toolkit.targets import target_of

_STREAMS = (0, 1, 2)
_END_SECONDS = 5.0
"""How long workers, whose pipes are closed as well, may take to end."""

_REQUEST_NBYTES = 1 << 16


def main() -> None:
    """Fork a worker for each request until the socket is closed."""
    control = socket.socket(fileno=os.dup(0))
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # pipes show the end of workers
    adopt_orphans()
    with contextlib.suppress(ConnectionError):
        while True:
            target, streams, _, _ = socket.recv_fds(control, _REQUEST_NBYTES, len(_STREAMS))
            if not target:
                break
            with die_with_parent(), contextlib.suppress(Exception):  # raised again by the question
                target_of(target.decode()).preload()
            pid = fork_process(partial(_work, control, streams), leads_group=False)
            for stream in streams:
                os.close(stream)
            control.sendall(b"%d\n" % pid)
    _end()


def _work(control: socket.socket, streams: list[int]) -> int:
    """Be a worker with the given standard streams; return its exit status."""
    control.close()
    for number, stream in zip(_STREAMS, streams, strict=True):
        os.dup2(stream, number)
        os.close(stream)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    worker.main()
    sys.stderr.flush()
    return 0


def _end() -> None:
    """Give the workers time to end their children, then kill all descendants."""
    deadline = time.monotonic() + _END_SECONDS
    while find_descendants(os.getpid()) and time.monotonic() < deadline:
        time.sleep(0.01)
    kill_descendants(os.getpid())


if __name__ == "__main__":
    main()
    os._exit(0)  # to take torch apart object by object costs a second
