"""check: compile and run a case once, and compare every step of the compile with eager.

What it does not do: it vetoes nothing, so it proves nothing; `diagnose` does.
"""

from dataclasses import dataclass

from ctk.toolkit.case.case import Case
from ctk.toolkit.compile_log.check import Finding, check_log
from ctk.toolkit.compile_log.recorder import CompileLog, Recorder
from ctk.toolkit.oracle.judge import judge
from ctk.toolkit.oracle.judgement import Judgement


@dataclass(frozen=True, slots=True)
class CheckReport:
    """A case's judgement on its results, and the findings on each step of its compile."""

    judgement: Judgement
    findings: tuple[Finding, ...]
    log: CompileLog

    @property
    def wrong(self) -> tuple[Finding, ...]:
        return tuple(finding for finding in self.findings if finding.status == "wrong")


def check_case(case: Case) -> CheckReport:
    """Compile and run a case once, and check every step of the compile."""
    recorder = Recorder(keep_calls=True)
    judgement = judge(case, observer=recorder)
    return CheckReport(judgement, tuple(check_log(case, recorder.log)), recorder.log)
