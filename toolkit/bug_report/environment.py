"""The versions of an issue: `torch.utils.collect_env`, without secrets and home folders."""

import os
import sys

from ctk.toolkit.case.formats.plain_text import many_lines
from ctk.toolkit.case.formats.scrub import scrub
from ctk.toolkit.processes.commands import run_command_group
from ctk.toolkit.repro.header import current_versions

SECONDS = 60.0
_BEGINS = "PyTorch version"


def collect_versions(seconds: float = SECONDS) -> str:
    """Return the output of `collect_env`; if there is none in time, the versions of this process.

    It asks package managers, compilers and drivers, so it runs in a child.
    """
    words = [sys.executable, "-W", "ignore", "-m", "torch.utils.collect_env"]
    ended = run_command_group(words, seconds=seconds, environ={**os.environ, "PYTHONSAFEPATH": "1"})
    _, found, rest = ended.output.partition(_BEGINS)
    if ended.code == 0 and found:
        return many_lines(scrub(f"{found}{rest}")).strip()
    versions = current_versions()
    why = "took too long" if ended.exceeded else f"ended with exit code {ended.code}"
    return (
        f"torch {versions.torch}\nPython {versions.python}\n{versions.platform}\n"
        f"(python -m torch.utils.collect_env {why})"
    )
