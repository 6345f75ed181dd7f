"""`assert_compiles`: fail a test, of any test runner, whose function compiles wrongly."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

from ctk.compiler.errors import ProgramError, WrongCompile
from ctk.toolkit.case.admission import command_on
from ctk.toolkit.case.store import save_case
from ctk.toolkit.importers import Inputs
from ctk.toolkit.operations.check import CheckReport, check
from ctk.toolkit.watch.watch_session import dump_folder, new_folder


def assert_compiles(
    function: Callable[..., object],
    args: Inputs = (),
    *,
    target: str | None = None,
    config: Mapping[str, object] | None = None,
    dump: str | Path | None = None,
) -> None:
    """Compile a function, call it, and compare the call with eager.

    >>> import ctk, torch
    >>> ctk.assert_compiles(torch.nn.Linear(4, 2), [torch.ones(3, 4)], target="inductor")

    Args:
        function: A function, a module, or a graph.
        args: Those of one call: positional ones, keywords, or a single tensor.
        target: A target spec; None for the default of `ctk check`.
        config: Options of the target.
        dump: Folder for a failing case (`CTK_DUMP`, default `ctk_dumps`).

    Raises:
        WrongCompile: An `AssertionError` with the verdict and the command that shows more.
        ProgramError: There is no verdict: eager raises, or two runs differ.
    """
    report = check(function, args, target=target, config=config)
    if report.judgement.is_no_failure:
        return
    if not report.judgement.fails:
        raise ProgramError(str(report))
    raise _make_error(report, dump)


def _make_error(report: CheckReport, dump: str | Path | None) -> WrongCompile:
    """Save the failing graph, if one fails, and return the exception."""
    failing = next((graph for graph in report.graphs if graph.judgement.fails), None)
    if failing is None:
        return WrongCompile(str(report))
    case = replace(failing.case, signature=failing.judgement.signature)
    folder = save_case(case, new_folder(dump_folder(dump)) / case.name)
    return WrongCompile(str(report), folder=folder, command=command_on("diagnose", folder, case))
