"""Run a module of ctk as on Windows, as far as Linux can: `python -m tests.helpers.windows ARGS`.

`ARGS` are those of the `ctk` command. Python's own modules and those of dependencies are imported
first, as they are here. From then on, POSIX-only modules cannot be imported, `sys.platform` is
`win32`, and a module that imports `os`, `signal`, `socket` or `select` gets one without the names
that Windows lacks. Not simulated: paths with drives, open files that cannot be removed, code pages.
"""

import importlib
import sys
import types
from typing import Any

from tests.helpers.warm_server import forget

_FIRST = """
    asyncio concurrent.futures ctypes filelock getpass linecache logging.handlers multiprocessing
    numpy pathlib pydantic rich.console rich.live rich.table safetensors.torch
    shutil sqlite3 subprocess tempfile typer.core torch torch._dynamo torch._functorch.aot_autograd
    torch._inductor.compile_fx torch.export torch.utils.flop_counter typing_extensions zipfile
"""
_MODULES = "fcntl grp posix pty pwd readline resource syslog termios tty"
_LACKING = {
    "os": """
        EX_OK O_CLOEXEC O_DIRECTORY O_NOFOLLOW O_NONBLOCK P_ALL P_PID WCONTINUED WEXITED WNOHANG
        WEXITSTATUS WIFEXITED WIFSIGNALED WIFSTOPPED WNOWAIT WTERMSIG WUNTRACED chown confstr
        fchdir fchmod fchown fork forkpty geteuid getgid getloadavg getpgid getpgrp getpriority
        getresuid getsid getuid killpg lchown memfd_create mkfifo mknod nice openpty pidfd_open
        pipe2 posix_fallocate posix_spawn pread pwrite readv register_at_fork sched_getaffinity
        sched_setaffinity sendfile set_blocking setpgid setpriority setsid setuid statvfs sync
        sysconf uname wait wait3 wait4 waitid
    """,
    "signal": """
        ITIMER_REAL SIGALRM SIGBUS SIGCHLD SIGCONT SIGHUP SIGKILL SIGPIPE SIGQUIT SIGSTOP SIGSYS
        SIGTRAP SIGTSTP SIGTTIN SIGTTOU SIGUSR1 SIGUSR2 SIGXCPU SIGXFSZ SIG_BLOCK SIG_SETMASK
        SIG_UNBLOCK alarm pause pthread_kill pthread_sigmask setitimer sigpending sigtimedwait
        sigwait sigwaitinfo
    """,
    "socket": "AF_UNIX CMSG_LEN recv_fds send_fds",
    "select": "epoll poll",
}


def pretend() -> None:
    """Make the modules that are imported from now on believe that they are on Windows."""
    for name in _FIRST.split():
        importlib.import_module(name)
    forget("ctk")  # in a warm interpreter
    for name in _MODULES.split():
        sys.modules[name] = None  # type: ignore[assignment]  # so an import of it raises
    for name, lacking in _LACKING.items():
        sys.modules[name] = _without(importlib.import_module(name), lacking.split())
    sys.modules["os"].name = "nt"
    sys.platform = "win32"


def _without(module: types.ModuleType, lacking: list[str]) -> types.ModuleType:
    """Return a copy of a module without some names."""
    copy: Any = types.ModuleType(module.__name__, module.__doc__)
    kept = {name: value for name, value in vars(module).items() if name not in lacking}
    copy.__dict__.update(kept)
    return copy


if __name__ == "__main__":
    pretend()
    importlib.import_module("ctk.toolkit.cli.main").main()
