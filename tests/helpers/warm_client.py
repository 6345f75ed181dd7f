"""`python` for tests: sends its arguments to the warm server and ends as the program did there.

Standard library only, and little of it: this starts hundreds of times. See warm_server.py.
"""

import array
import json
import os
import resource
import signal
import socket
import sys
from pathlib import Path


def main(address: str) -> None:
    """Run `sys.argv[1:]` in the warm server; exit with its status, or die of its signal."""
    request = {
        "argv": sys.argv[1:],
        "cwd": str(Path.cwd()),
        "environ": dict(os.environ),
        "client": str(Path(sys.argv[0]).with_name("python")),
    }
    server = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    server.connect(address)
    streams = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", (0, 1, 2)))]
    data = json.dumps(request).encode() + b"\n"
    sent = server.sendmsg([data], streams)
    server.sendall(data[sent:])
    signal.signal(signal.SIGINT, lambda *_: server.sendall(b"i"))
    answer = server.recv(64)
    if not answer:
        raise SystemExit("the warm server of the tests has ended")
    status = json.loads(answer)
    if status >= 0:
        os._exit(status)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if -status != signal.SIGKILL:
        signal.signal(-status, signal.SIG_DFL)
    os.kill(os.getpid(), -status)
