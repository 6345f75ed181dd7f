"""`ctk bisect-version`: the release of torch or Triton at which a failure begins, or ends.

Exit codes: 1 the failure was seen, and the change found or excluded; 0 no release that was asked
fails; 125 no release has an answer, or the change lies among releases without one.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any

from rich.console import RenderableType
from typer.core import TyperCommand

from ctk.compiler.errors import ConfigError, count_of
from ctk.toolkit.cli.shell.answer import Answer, ExitCode, table
from ctk.toolkit.cli.shell.command_context import Command
from ctk.toolkit.cli.shell.completion import complete_case
from ctk.toolkit.cli.shell.options import argument
from ctk.toolkit.cli.shell.progress import progress
from ctk.toolkit.operations.options import VersionOptions

if TYPE_CHECKING:
    from ctk.toolkit.operations.versions.version_search import AskedRelease, VersionReport
    from ctk.toolkit.releases.environments import Removal


def bisect_version(
    options: VersionOptions,
    subject: Annotated[
        str,
        argument(
            "[CASE]",
            "As for `ctk check` (a program that names no target is compiled with inductor), or a "
            "script such as an emitted repro.py, which ends with exit code 0 (good), 1 (bad) or "
            "another one (cannot tell).",
            complete_case,
        ),
    ] = "",
) -> Answer:
    """Find the release that broke it, or repaired it.

    Installs releases of torch in environments of their own and asks a standalone script. Then the
    bad torch is asked with the Triton of the good one.
    """
    if not subject:
        return _remove_all(options)
    from ctk.toolkit.operations.bisect_version import bisect_version as find_release

    with progress() as report:
        found = find_release(subject, replace(options, say=report))
    return answer_of_versions(found)


def _remove_all(options: VersionOptions) -> Answer:
    if options.keep:
        raise ConfigError("give a CASE or a script; without one, --clean removes environments")
    from ctk.toolkit.operations.bisect_version import remove_all

    with progress() as report:
        root, removed = remove_all(report)
    data = {"environments": str(root), "removed": _removal_data(removed)}
    return Answer(ExitCode.NO_FAILURE, f"removed {_removal_line(removed)} from {root}", data)


def answer_of_versions(found: "VersionReport") -> Answer:
    """Return the answer for a search over releases."""
    from ctk.toolkit.operations.report.versions import headline, lines, report_data

    code = ExitCode.FAILURE if found.having("bad") else ExitCode.NO_FAILURE
    if found.is_undecided:
        code = ExitCode.CANNOT_TELL
    body: list[RenderableType] = [*lines(found), _table(found.releases)]
    if found.removed is not None:
        body.append(f"removed    {_removal_line(found.removed)}")
    elif found.root is not None:
        body.append(f"kept       {found.root} (ctk bisect-version --clean removes it)")
    data = report_data(found) | {"removed": found.removed and _removal_data(found.removed)}
    return Answer(code, headline(found), data, tuple(body))


def _table(releases: "Sequence[AskedRelease]") -> RenderableType:
    from ctk.toolkit.operations.report.versions import rows

    return table("release", "released", "triton", "answer", "reason", rows=rows(releases))


def _removal_line(removed: "Removal") -> str:
    from ctk.toolkit.processes.memory import format_size

    line = f"{count_of(removed.count, 'environment')}, {format_size(removed.nbytes)}"
    busy = f"; {count_of(len(removed.busy), 'environment')} in use stays" if removed.busy else ""
    return f"{line}{busy}"


def _removal_data(removed: "Removal") -> dict[str, object]:
    return {
        "environments": removed.count,
        "nbytes": removed.nbytes,
        "in_use": [str(folder) for folder in removed.busy],
    }


class KeepOrClean(TyperCommand):
    """The parser of bisect-version: refuses `--keep` beside `--clean`, of which the last would win.

    Raises:
        ConfigError: Both are there.
    """

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse the arguments."""
        if {"--keep", "--clean"} <= {*args}:
            raise ConfigError("--keep and --clean exclude each other; next: leave one of them out")
        return super().parse_args(ctx, args)


COMMAND = Command("bisect-version", bisect_version, parser=KeepOrClean)
