"""`ctk doctor`: is this machine ready? 0 fine, 1 a problem was found."""

from ctk.compiler.errors import count_of
from ctk.toolkit.cli.shell.answer import Answer, ExitCode, table
from ctk.toolkit.cli.shell.command_context import Command


def doctor() -> Answer:
    """Say whether this machine is ready.

    Looks at versions, the C++ compiler, the backend, the CTK_ variables and the dump folder.
    """
    from dataclasses import asdict

    from ctk.toolkit.operations.doctor import examine

    findings = examine()
    problems = [health for health in findings if not health.is_fine]
    cells = (
        ("ok" if finding.is_fine else "PROBLEM", finding.name, finding.detail)
        for finding in findings
    )
    rows = table("", "check", "found", rows=cells)
    advice = tuple(f"{health.name}: {health.advice}" for health in problems if health.advice)
    names = ", ".join(health.name for health in problems)
    headline = (
        f"{count_of(len(problems), 'problem')}: {names}" if problems else "everything is fine"
    )
    code = ExitCode.FAILURE if problems else ExitCode.NO_FAILURE
    data = {"checks": [asdict(health) for health in findings]}
    return Answer(code, headline, data, (rows, *advice))


COMMAND = Command("doctor", doctor)
