"""`ctk diff`: two compiles of one case, step by step; or two cases, as they are on disk."""

import shlex
from dataclasses import asdict, dataclass, fields
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

from rich.console import RenderableType

from ctk.compiler.errors import ConfigError
from ctk.toolkit.cli.commands.report import WithReport, with_live_report
from ctk.toolkit.cli.shell.answer import Answer, ExitCode, highlight_code, table
from ctk.toolkit.cli.shell.command_context import Command
from ctk.toolkit.cli.shell.completion import complete_case
from ctk.toolkit.cli.shell.exit_codes import document_data, exit_code_of, line_of
from ctk.toolkit.cli.shell.options import SubjectArgument, argument
from ctk.toolkit.cli.shell.progress import progress
from ctk.toolkit.options import (
    AllowImports,
    Backward,
    Dynamic,
    Flag,
    GraphNumber,
    Trust,
    keywords_of,
    parse_config,
    parse_value,
)

if TYPE_CHECKING:
    from rich.table import Table

    from ctk.toolkit.compile_log.compare import MadeRewrite
    from ctk.toolkit.operations.diff import DiffReport, GraphDiff, Side

SHOWN = 20
"""How many rewrites of each side are shown."""

DIFF_LINES = 40
"""How many lines of the first different graph are shown."""

SIDES = ("left", "right")

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class DiffOptions:
    """The two compiles of one case, or the two cases."""

    subject: SubjectArgument
    other: Annotated[
        Path | None,
        argument(
            "OTHER",
            "Another case folder: show the differences; nothing is compiled.",
            complete_case,
        ),
    ] = None
    target: Annotated[
        list[str] | None,
        Flag(
            ("--target", "-t"),
            "A target: twice for the two sides, once for both.",
            metavar="TARGET",
        ),
    ] = None
    config: Annotated[
        list[str] | None,
        Flag(
            ("--config", "-c"),
            "The options of one side: KEY=VALUE, or several as shell words in quotes, or an "
            "empty string for none. Twice for the two sides; once: against none, or with two "
            "targets for both.",
            metavar="OPTIONS",
        ),
    ] = None
    backward: Backward = False
    dynamic: Dynamic = False
    graph: GraphNumber = None
    trust: Trust = False
    allow_imports: AllowImports = ()
    report: WithReport = False


def diff(options: DiffOptions) -> Answer:
    """Compare two compiles of one case, or two cases.

    Shows the first graph and the first value that differ, and the rewrites of only one side.
    Exits with 1 if the results of either side are wrong. Two cases are compared in graph, inputs
    and constants (type, layout, values), target, options, modes and the recorded failure.
    """
    from ctk.toolkit.operations.diff import diff as diff_program
    from ctk.toolkit.operations.pages.diff_page import page_of_diff

    if options.other is not None:
        return diff_cases(options, options.other)
    left, right = sides_of(options.target or [], options.config or [])
    for_both: dict[str, Any] = keywords_of(options) | {"target": left.target, "config": None}
    is_wanted = for_both.pop("report")
    with progress() as say:
        found = diff_program(options.subject, left=left, right=right, say=say, **for_both)
    make = partial(page_of_diff, found, options.subject) if is_wanted else None
    return with_live_report(answer_of(found), make)


def diff_cases(options: DiffOptions, other: Path) -> Answer:
    """Return the answer for two cases.

    Raises:
        ConfigError: An option is about a compile.
    """
    from ctk.toolkit.case.comparison import compare_cases

    said = {field.name: getattr(options, field.name) for field in fields(options)}
    given = [name for name, each in said.items() if each and name not in ("subject", "other")]
    if given:
        raise ConfigError(
            f"--{given[0].replace('_', '-')} is about a compile, and two cases are compared as "
            "they are on disk: give one case and two targets or options, or leave it out"
        )
    cases = compare_cases(Path(options.subject), other)
    body: list[RenderableType] = []
    if cases.rows:
        rows = ((row.what, row.left, row.right) for row in cases.rows)
        body.append(table("differs", *SIDES, rows=rows))
    if cases.graph:
        body.append(highlight_code(cases.graph, "diff"))
    headline = f"{options.subject} and {other} differ: {cases}"
    if cases.is_same:
        headline = f"{options.subject} and {other} are the same"
    data = {"same": cases.is_same, "left": options.subject, "right": str(other), **asdict(cases)}
    return Answer(ExitCode.NO_FAILURE, headline, data, tuple(body))


def sides_of(targets: list[str], configs: list[str]) -> "tuple[Side, Side]":
    """Return the two sides; an option that is given once holds for both if another is given twice.

    Raises:
        ConfigError: The sides would be the same, or there are more than two.
    """
    from ctk.toolkit.operations.diff import Side

    for name, given in (("--target", targets), ("--config", configs)):
        if len(given) > 2:
            raise ConfigError(f"{name} is given {len(given)} times; there are two sides")
    if not targets and not configs:
        raise ConfigError(
            "nothing to compare: give --target or --config twice\n"
            "  e.g. ctk diff CASE --target ctk --target inductor"
        )
    is_twice = 2 in (len(targets), len(configs))
    first, second = _both(targets, is_twice)
    options = [options_in(words) for words in configs]
    one, other = _both(options, is_twice)
    return Side(first, one), Side(second, other)


def options_in(words: str) -> dict[str, object]:
    """Return the options of one side; a single one needs no quotes of its own.

    >>> options_in('disable=["joint/cse"]')
    {'disable': ['joint/cse']}
    >>> options_in("fuel=3 disable='[\"joint/cse\"]'")
    {'fuel': 3, 'disable': ['joint/cse']}

    Raises:
        ConfigError: They are no shell words, or one is not KEY=VALUE.
    """
    text = words.partition("=")[2]
    if not isinstance(parse_value(text), str):
        return parse_config([words])
    try:
        return parse_config(shlex.split(words))
    except ValueError as error:
        raise ConfigError(f"--config {words!r}: {error}") from error


def _both(given: list[T], is_twice: bool) -> tuple[T | None, T | None]:
    """Return the value of each side for an option that is given up to twice."""
    if len(given) == 2:
        return given[0], given[1]
    if not given:
        return None, None
    return (given[0], given[0]) if is_twice else (None, given[0])


def answer_of(report: "DiffReport") -> Answer:
    """Return the answer: the first difference, then each graph."""
    body = [part for graph in report.graphs for part in _parts(graph)]
    data = {"same": report.is_same, "graphs": [graph_data(graph) for graph in report.graphs]}
    return Answer(exit_code_of(report.judgement), str(report), data, tuple(body))


def _parts(graph: "GraphDiff") -> list[RenderableType]:
    comparison = graph.comparison
    parts: list[RenderableType] = [sides_table(graph)]
    if comparison.graph is not None:
        first = comparison.graph
        parts += [
            "",
            f"the graphs first differ: left after {first.left}, right after {first.right}",
        ]
        lines = first.diff.splitlines()
        text = "\n".join(lines[2 : 2 + DIFF_LINES])  # without the names of the two files
        parts.append(highlight_code(text, "diff"))
        if len(lines) > 2 + DIFF_LINES:
            parts.append(f"and {len(lines) - 2 - DIFF_LINES} more lines: --json has all")
    if comparison.value is not None:
        value = comparison.value
        who = "" if value.side == "both" else f", which only the {value.side} compile has"
        parts += [
            "",
            f"the values first differ: {value.node or value.value} after {value.step}{who}",
        ]
        for side, size in zip(SIDES, (value.left, value.right), strict=True):
            if size is not None:
                rel = f"max abs {size.max_abs:.3g}, max rel {size.max_rel:.3g}"
                parts.append(f"  {side}: {size.max_ulp:.3g} ULP from float64 ({rel})")
    for side, made in zip(SIDES, (comparison.only_left, comparison.only_right), strict=True):
        parts += _list_rewrites(side, made)
    return parts


def sides_table(graph: "GraphDiff") -> "Table":
    """Return one row per side: target, options, and the judgement of its results."""
    rows = table("graph", "side", "target", "config", "results")
    for side, case, seen in zip(SIDES, graph.cases, graph.judgements, strict=True):
        options = " ".join(f"{key}={value}" for key, value in case.config.items())
        rows.add_row(case.name, side, case.target, options, line_of(seen))
    return rows


def _list_rewrites(side: str, made: "tuple[MadeRewrite, ...]") -> list[RenderableType]:
    from ctk.toolkit.compile_log.compare import format_rewrites

    if not made:
        return []
    count = sum(each.count for each in made)
    lines = [f"  {line}" for line in format_rewrites(made, SHOWN)]
    return ["", f"rewrites that only the {side} compile makes: {count}", *lines]


def graph_data(graph: "GraphDiff") -> dict[str, object]:
    """Return the JSON form of one graph."""
    seen = zip(SIDES, graph.cases, graph.judgements, strict=True)
    sides = {
        side: {"target": case.target, "config": dict(case.config), "judgement": document_data(one)}
        for side, case, one in seen
    }
    return {"graph": graph.cases[0].name, **sides, **asdict(graph.comparison)}


COMMAND = Command("diff", diff)
