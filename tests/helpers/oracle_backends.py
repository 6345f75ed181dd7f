"""Dynamo backends with planted faults, for the tests of the executors."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable

import torch
from torch.fx import GraphModule

Compiled = Callable[..., object]


def _calls(gm: GraphModule, *names: str) -> bool:
    targets = {getattr(node.target, "__name__", node.target) for node in gm.graph.nodes}
    return set(names) <= targets


def right(gm: GraphModule, inputs: list[object]) -> Compiled:
    return gm.forward


def wrong_gelu(gm: GraphModule, inputs: list[object]) -> Compiled:
    """Compile `gelu` as `relu` where `hardtanh` follows."""
    for node in gm.graph.nodes:
        followers = {getattr(user.target, "__name__", "") for user in node.users}
        if getattr(node.target, "__name__", "") == "gelu" and "hardtanh" in followers:
            node.target = torch.relu
    gm.recompile()
    return gm.forward


def segfault(gm: GraphModule, inputs: list[object]) -> Compiled:
    if _calls(gm, "gelu", "hardtanh"):
        os.kill(os.getpid(), signal.SIGSEGV)
    return gm.forward


def leave(gm: GraphModule, inputs: list[object]) -> Compiled:
    if _calls(gm, "hardtanh"):
        raise SystemExit(3)
    return gm.forward


def end_the_process(gm: GraphModule, inputs: list[object]) -> Compiled:
    if _calls(gm, "hardtanh"):
        os._exit(3)
    return gm.forward


def hang(gm: GraphModule, inputs: list[object]) -> Compiled:
    """Hang, with a process started meanwhile that would hang too."""
    if _calls(gm, "hardtanh"):
        subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
        time.sleep(600)
    return gm.forward


def talk(gm: GraphModule, inputs: list[object]) -> Compiled:
    """Write to stdout, as compilers do."""
    print('{"verdict": "flaky"}', flush=True)
    os.write(1, b"not json\n")
    return gm.forward


def crash_at_exit(gm: GraphModule, inputs: list[object]) -> Compiled:
    """Return a program that kills the process when it runs, not while it compiles."""

    def call(*values: object) -> object:
        os.abort()

    return call


def exploding(x: torch.Tensor) -> torch.Tensor:
    """Kill the process wherever this op runs, in eager too."""
    os.abort()


torch.fx.wrap("exploding")


def devour(gm: GraphModule, inputs: list[object]) -> Compiled:
    """Compile to a program that takes memory until it is stopped, in a process of its own too."""

    def call(*values: object) -> object:
        os.fork()
        kept: list[bytearray] = []
        for _ in range(64):
            kept.append(bytearray(b"x") * (64 << 20))
            time.sleep(0.02)
        raise MemoryError

    return call


def killed_from_outside(gm: GraphModule, inputs: list[object]) -> Compiled:
    """Die as of the system's want of memory."""
    if _calls(gm, "hardtanh"):
        os.kill(os.getpid(), signal.SIGKILL)
    return gm.forward


def leave_a_daemon(gm: GraphModule, inputs: list[object]) -> Compiled:
    """Start a process that leaves its group, its session and its parents; answer as usual."""
    code = (
        "import os, time\nif os.fork(): os._exit(0)\nos.setsid()\nif os.fork(): os._exit(0)\n"
        "time.sleep(600)"
    )
    subprocess.run([sys.executable, "-SE", "-c", code], check=True)
    return gm.forward


def slow_wrong_gelu(gm: GraphModule, inputs: list[object]) -> Compiled:
    """Compile as `wrong_gelu` does, after a wait: what a costly compiler is to those who wait."""
    time.sleep(0.2)
    return wrong_gelu(gm, inputs)
