"""Diagnose a failing case on the spot, in a process of its own.

The process of the tests keeps its state: Dynamo's caches, its options, its memory.
"""

import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ctk.compiler.errors import CaseError
from ctk.toolkit.case.admission import trust_option
from ctk.toolkit.case.judgement import Verdict
from ctk.toolkit.operations.report.as_json import Record, read_json
from ctk.toolkit.operations.report.as_text import summary
from ctk.toolkit.operations.report.next_steps import next_steps
from ctk.toolkit.operations.report.phrases import VERDICTS
from ctk.toolkit.processes.commands import run_command_group

_COMMAND = "from ctk.toolkit.cli.main import main; main()"

_REDUCING = 0.5
"""The share of the time in which the case is made smaller; the rest is for the bisection."""


@dataclass(frozen=True, slots=True)
class Diagnosed:
    """The diagnosis of a case, so far as the time allowed."""

    folder: Path
    record: Record

    @property
    def lines(self) -> Sequence[str]:
        """The diagnosis as text, the answer on the first line."""
        return summary(self.record, self.folder)

    @property
    def command(self) -> str:
        """The next command, without its remark; empty if there is none."""
        steps = next_steps(self.record, self.folder)
        return steps[0].command if steps else ""


def diagnose_case(case: Path, out: Path, seconds: float) -> Diagnosed | str:
    """Diagnose the case in a folder; return why there is no diagnosis if so.

    Args:
        out: The folder to write to, replaced if it exists.
        seconds: Time limit; a diagnosis that it ends keeps everything found until then.
    """
    limit = ["--max-seconds", str(max(seconds * _REDUCING, 1))]
    program = [sys.executable, "-c", _COMMAND, "diagnose", str(case)]
    path = os.pathsep.join(each for each in sys.path if each)
    ended = run_command_group(
        [*program, *trust_option(case).split(), "--out", str(out), *limit],
        seconds=seconds,
        environ={**os.environ, "PYTHONPATH": path},
    )
    try:
        found = Diagnosed(out, read_json(out))
        if found.record.verdict is Verdict.REPRODUCES:
            return found
        return f"alone, in a process of its own, {VERDICTS[found.record.verdict]}"
    except CaseError:
        if ended.exceeded is not None:
            return f"its diagnosis found nothing in {seconds:g} s (--ctk-seconds)"
        last = ended.output.strip().splitlines()[-1:] or [f"exit code {ended.code}"]
        return f"it could not be diagnosed: {last[0]}"
