"""Small programs that run in two halves, without torch: `python -m tests.helpers.halves WORK`.

The working half prints its process id and does what WORK says; the other prints how it ended.
"""

import os
import signal
import subprocess
import sys
import time
from types import FrameType

from ctk.toolkit.processes.link import Watch, apply_limits, find_link, report_alive
from ctk.toolkit.processes.signals import defer_interrupts
from ctk.toolkit.processes.supervise import fork_half

GRACE_SECONDS = 1.0

DAEMON = "import os,time\nif os.fork(): os._exit(0)\nos.setsid()\nif os.fork(): os._exit(0)\n"
"""Leaves its parents, its group and its session."""


def count_interrupts() -> None:
    """Catch SIGINT and SIGTERM for a second, and print how many came."""
    seen: list[int] = []

    def note(number: int, _frame: FrameType | None) -> None:
        seen.append(number)

    signal.signal(signal.SIGINT, note)
    signal.signal(signal.SIGTERM, note)
    print("ready", os.getpid(), flush=True)
    deadline = time.monotonic() + 1.5
    while time.monotonic() < deadline:
        time.sleep(0.05)
    print("seen", *seen, flush=True)


def let_a_fork_catch() -> None:
    """Fork a child that catches SIGTERM one, then do the same as `count_interrupts`."""
    child = os.fork()
    if child == 0:
        signal.signal(signal.SIGTERM, lambda *_: os._exit(3))
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(60)
    os.waitpid(child, 0)
    count_interrupts()


def be_stubborn() -> None:
    """Take no notice of signals that end, with a child that takes none either."""
    signal.signal(signal.SIGTERM, lambda *_: None)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # as a backend may
    code = "import signal,time; signal.signal(15, signal.SIG_IGN); time.sleep(600)"
    subprocess.Popen([sys.executable, "-SE", "-c", code])
    print("ready", os.getpid(), flush=True)
    while True:
        time.sleep(1)


def hang_under_watch() -> None:
    """Tell a limit of a second, show signs of life for longer than that, then none; be stubborn."""
    with apply_limits(Watch(1.0, None)):
        for _ in range(8):
            time.sleep(0.2)
            report_alive()
        be_stubborn()


def fill_under_watch() -> None:
    """Tell a limit of memory, which a child of ours passes."""
    with apply_limits(Watch(60.0, 150 << 20)):
        code = "import time; data = b'x' * (200 << 20); time.sleep(600)"
        subprocess.Popen([sys.executable, "-SE", "-c", code])
        wait()


def outlive_a_watch() -> None:
    """Be silent for long, but after the end of the block that was watched."""
    with apply_limits(Watch(0.5, 1 << 50)):
        pass
    print("ready", os.getpid(), flush=True)
    time.sleep(2)


def write_for_long() -> None:
    """Write a result for longer than an interrupted command may show no sign of life."""
    with defer_interrupts():
        print("ready", os.getpid(), flush=True)
        time.sleep(3 * GRACE_SECONDS)


def leave_a_daemon() -> None:
    subprocess.run([sys.executable, "-SE", "-c", f"{DAEMON}time.sleep(600)"], check=True)
    print("ready", os.getpid(), flush=True)


def answer_and_crash() -> None:
    link = find_link()
    assert link is not None
    link.note_started("check", as_json=True)
    link.note_answered(1)
    os.abort()


def answer() -> None:
    print("ready", os.getpid(), flush=True)


def wait() -> None:
    print("ready", os.getpid(), flush=True)
    time.sleep(600)


def main() -> None:
    work = globals()[sys.argv[1]]
    grace_seconds = GRACE_SECONDS if work in (be_stubborn, write_for_long) else 60.0
    end = fork_half(grace_seconds=grace_seconds, cleans_up="untidy" not in sys.argv)
    if end is None:
        work()
        return
    notes = end.notes
    print("end", end.status, end.gave_up, sorted(end.signals), notes.command, notes.exit_code)
    if end.exceeded:
        print("exceeded", end.exceeded)


if __name__ == "__main__":
    main()
