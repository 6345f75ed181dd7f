"""`ctk run`: run a script with every `torch.compile` in it watched, without changing the script."""

import traceback
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ctk.compiler.errors import ConfigError, count_of, nearest
from ctk.compiler.options.choices import Check, OnFailure, WatchedInputs
from ctk.toolkit.cli.commands.report import WithReport, with_folder_report
from ctk.toolkit.cli.shell.answer import Answer, ExitCode
from ctk.toolkit.cli.shell.command_context import Command
from ctk.toolkit.cli.shell.completion import complete_case
from ctk.toolkit.cli.shell.options import argument
from ctk.toolkit.options import Flag

if TYPE_CHECKING:
    from ctk.toolkit.watch.script import RunSummary
    from ctk.toolkit.watch.watch_session import Failure


@dataclass(frozen=True, slots=True)
class WatchingOptions:
    """The checks of each compile, and their output."""

    out: Annotated[
        Path | None,
        Flag(
            ("--out", "-o"),
            "Folder to write to (default: CTK_DUMP, else ctk_dumps here).",
            metavar="DIR",
        ),
    ] = None
    check: Annotated[
        Check | None,
        Flag(("--check",), "What to compare with eager (default: CTK_CHECK, else output)."),
    ] = None
    on_failure: Annotated[
        OnFailure | None,
        Flag(
            ("--on-failure",),
            "The effect of a failure on the script (default: CTK_ON_FAILURE, else raise).",
        ),
    ] = None
    inputs: Annotated[
        WatchedInputs | None,
        Flag(
            ("--inputs",),
            "Inputs and weights that cases keep (default: CTK_INPUTS, else failing: a recipe,"
            " or the values of a failing call if its recipe does not show the failure).",
        ),
    ] = None
    calls: Annotated[
        int,
        Flag(
            ("--calls",),
            "How many first calls of each compiled function are compared with eager.",
            minimum=0,
        ),
    ] = 1
    report: WithReport = False
    module: Annotated[bool, Flag(("-m",), "SCRIPT is the name of a module, as for python -m.")] = (
        False
    )


def no_option(context: typer.Context, script: str) -> str:
    """Return the name of a script; a name that starts like an option is a misspelt option.

    Raises:
        ConfigError: It starts with `-`.
    """
    if script.startswith("-"):
        known = [spelling for param in context.command.params for spelling in param.opts]
        raise ConfigError(
            f"no such option: {script!r}{nearest(script.partition('=')[0], known)}\n"
            "  options of ctk stand before SCRIPT; a script of such a name: ./-NAME.py"
        )
    return script


def run(
    watching: WatchingOptions,
    script: Annotated[
        str, argument("SCRIPT", "A Python script.", complete_case, callback=no_option)
    ],
    arguments: Annotated[list[str] | None, argument("ARGS", "Its arguments.")] = None,
) -> Answer:
    """Run a script, watching each torch.compile.

    Saves failures as cases. Compares the first call of each compiled graph with eager, and the
    first calls of each compiled function: end to end, and graph by graph. Exits with 1 for a
    failure, else with the exit code of the script, or with 125 if nothing was compared.
    Options of ctk stand before SCRIPT. Output of the script goes to stderr.
    """
    from ctk.compiler.options.environment import read_environment
    from ctk.compiler.usercode.references import find_script

    find_script(script, is_module=watching.module)  # before torch is imported
    from ctk.toolkit.watch.script import run_script

    summary = run_script(
        script,
        arguments or (),
        is_module=watching.module,
        dump=watching.out,
        check=watching.check or read_environment().check or "output",
        on_failure=watching.on_failure,
        inputs=watching.inputs or read_environment().inputs or "failing",
        calls=watching.calls,
    )
    answer = answer_of_summary(script, summary)
    return with_folder_report(answer, summary.folder, is_wanted=watching.report)


def answer_of_summary(script: str, summary: "RunSummary") -> Answer:
    """Return the answer; a failure that was seen counts more than how the script ended."""
    code, headline = verdict_of(script, summary)
    lines = [
        diagnosing(failure, number)
        if failure.is_saved
        else f"{locate_unsaved(failure)}: {failure.graph}: {failure.summary}"
        for number, failure in enumerate(summary.failures)
    ]
    lines += [f"also: {each}" for each in summary.why[1:]]
    lines += [
        f"missing: {each.graph or 'a graph that was not watched'}: {each.part}: {each.why}"
        for each in summary.missing
    ]
    lines += describe_calls(summary)
    if summary.folder is not None:
        lines.append(f"dumps: {summary.folder}")
    if code == ExitCode.CANNOT_TELL and summary.error is None:
        lines.append(f"next: {next_step(script, summary)}")
    if summary.error is not None and not summary.failures:
        lines.append("".join(traceback.format_exception(summary.error)).rstrip())
    return Answer(code, headline, data_of(summary), tuple(lines))


def locate_unsaved(failure: "Failure") -> str:
    """Return the place of a failure that has no case: a call, or a graph that was not saved."""
    is_call = failure.folder.suffix == ".json"
    return f"no graph shows it, see {failure.folder}" if is_call else "not saved, see below"


def diagnosing(failure: "Failure", number: int) -> str:
    """Return the command that diagnoses a failure; the first line already describes number 0."""
    from ctk.toolkit.case.admission import command_on

    what = f"  # {failure.graph}: {failure.summary}" if number else ""
    if failure.advice:
        return f"{failure.folder}: {failure.advice}{what}"
    return f"{command_on('diagnose', failure.folder)}{what}"


def describe_calls(summary: "RunSummary") -> list[str]:
    """Return which calls and graphs were not compared with eager, and why."""
    calls = summary.calls
    return [
        *(
            f"not compared: {count_of(number, 'call')}: {why}"
            for why, number in calls.skipped.items()
        ),
        *(
            f"compared graph by graph only: {count_of(number, 'call')}: {why}"
            for why, number in calls.by_graph.items()
        ),
        *(f"not compared: {graph}: {why}" for graph, why in summary.unchecked.items()),
    ]


def verdict_of(script: str, summary: "RunSummary") -> tuple[int, str]:
    """Return exit code and first line.

    1. A failure in a compile or a compared call. 2. Ctrl-C. 3. The exit code of the script. 4.
    Nothing was compiled or compared: cannot tell. 5. All compiles went well; unwritten dumps are
    reported.
    """
    if summary.failures:
        first = summary.failures[0]
        more = f" (and {len(summary.failures) - 1} more)" if len(summary.failures) > 1 else ""
        return ExitCode.FAILURE, f"failure: {first.graph}: {first.summary}{more}".splitlines()[0]
    graphs = count_of(summary.graphs, "graph")
    if isinstance(summary.error, KeyboardInterrupt):
        seen = f"{graphs} until then, none failed"
        return ExitCode.CANNOT_TELL, f"cannot tell: interrupted; {seen}"
    if summary.exit_code:
        return summary.exit_code, f"ctk: {script} {describe_end(summary)}"
    if not summary.graphs and not summary.children.graphs:
        why = f": {summary.why[0]}" if summary.why else ""
        text = f"cannot tell: {script} compiled nothing{why}{describe_unwatched(summary)}"
        return ExitCode.CANNOT_TELL, text
    unseen = [each.why for each in summary.missing if each.part == "everything"]
    if unseen:
        seen = f"{count_of(len(unseen), 'graph')} could not be watched"
        return ExitCode.CANNOT_TELL, f"cannot tell: {seen}: {unseen[0]}"
    compiled = f"{graphs} compiled{theirs(summary)}"
    if summary.check != "off" and not summary.checked and not summary.calls.whole:
        return ExitCode.CANNOT_TELL, f"cannot tell: {compiled}, no call compared with eager"
    names = len({each.graph for each in summary.missing})
    missing = (
        f"; the dumps of {count_of(names, 'graph')} are missing or incomplete" if names else ""
    )
    ending = f"{missing}{describe_unwatched(summary)}"
    return ExitCode.NO_FAILURE, f"no failure: {compiled}, {describe_compared(summary)}{ending}"


def describe_compared(summary: "RunSummary") -> str:
    """Return how many calls were compared."""
    if summary.check == "off":
        return "results not compared (--check off)"
    calls = summary.calls
    if not calls.made:
        return f"{count_of(summary.checked, 'graph call')} compared with eager"
    compared = calls.made - calls.skipped.total()
    made = f"{compared} of {count_of(calls.made, 'call')}" if compared < calls.made else ""
    return f"{made or count_of(compared, 'call')} compared with eager"


def describe_end(summary: "RunSummary") -> str:
    """Return how the script ended, and how many calls were compared before."""
    if summary.error is not None:
        end = f"raised {type(summary.error).__name__}: {summary.error}".splitlines()[0]
    else:
        end = f"exited with {summary.exit_code}"
    if not summary.checked and not summary.calls.whole:
        return f"{end}; no call was compared with eager"
    return f"{end}; no compile failed, {describe_compared(summary)}"


def next_step(script: str, summary: "RunSummary") -> str:
    """Return what to do when nothing was compared."""
    if summary.graphs or summary.children.graphs:
        return f"call each compiled function in {script} with inputs that eager accepts"
    return f"call a function of torch.compile in {script}; ctk check FILE.py compiles it for you"


def theirs(summary: "RunSummary") -> str:
    """Return the part of the answer about graphs that child processes compiled."""
    graphs, count = summary.children.graphs, summary.children.processes
    processes = count_of(count, "child process", "child processes")
    return f", {count_of(graphs, 'graph')} in {processes}" if graphs else ""


def describe_unwatched(summary: "RunSummary") -> str:
    """Return the part of the answer about child processes that were not watched."""
    count = summary.children.unwatched
    processes = count_of(count, "Python child process", "Python child processes")
    verb = "was" if count == 1 else "were"
    return f"; {processes} {verb} not watched" if count else ""


def data_of(summary: "RunSummary") -> dict[str, object]:
    """Return the JSON form of a run."""
    return {
        "graphs": summary.graphs,
        "failures": [
            {
                "graph": failure.graph,
                "case": str(failure.folder) if failure.is_saved else None,
                "summary": failure.summary,
            }
            for failure in summary.failures
        ],
        "children": {
            "graphs": summary.children.graphs,
            "processes": summary.children.processes,
            "not_watched": summary.children.unwatched,
        },
        "why_nothing": list(summary.why),
        "missing": [
            {"graph": each.graph, "what": each.part, "why": each.why} for each in summary.missing
        ],
        "calls": {
            "made": summary.calls.made,
            "compared": summary.calls.whole,
            "by_graph": dict(summary.calls.by_graph),
            "not_compared": dict(summary.calls.skipped),
        },
        "graph_calls_compared": summary.checked,
        "graphs_not_compared": dict(summary.unchecked),
        "dumps": str(summary.folder) if summary.folder else None,
        "script_exit_code": summary.exit_code,
        "script_error": repr(summary.error) if summary.error else None,
    }


COMMAND = Command("run", run, passes_arguments_on=True)
