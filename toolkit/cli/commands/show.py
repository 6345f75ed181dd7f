"""`ctk show`: a case, a diagnosis, a package; a pass, kernels, times, whys of a case and a rule."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Annotated, cast

from rich.console import RenderableType
from rich.table import Table

from ctk.compiler.errors import CaseError, ConfigError, NoSuchCase, count_of
from ctk.compiler.usercode.references import near_file
from ctk.toolkit.cli.commands.show_package import show_package
from ctk.toolkit.cli.commands.show_why import show_why
from ctk.toolkit.cli.shell.answer import Answer, ExitCode, highlight_code, table
from ctk.toolkit.cli.shell.command_context import Command
from ctk.toolkit.cli.shell.completion import complete_case
from ctk.toolkit.cli.shell.exit_codes import document_data
from ctk.toolkit.cli.shell.options import argument
from ctk.toolkit.options import AskOptions, Flag

if TYPE_CHECKING:
    from ctk.compiler.observe import KernelRecord
    from ctk.toolkit.case.roles import Role
    from ctk.toolkit.case.trust.demands import Demand
    from ctk.toolkit.operations.times import StepTime, Times
    from ctk.toolkit.watch.dump import DumpedKernel, DumpedPass

DIAGNOSIS = "diagnosis.json"

COMPILING = ("--times", "--kernels", "--why-not")
"""The questions that compile the case."""


@dataclass(frozen=True, slots=True)
class ShowOptions:
    """The question about a case, at most one of these, and how the case is compiled for it."""

    pass_number: Annotated[
        int | None,
        Flag(
            ("--pass",),
            "Show the changes of pass number N (the numbers are those of the list).",
            metavar="N",
            minimum=0,
        ),
    ] = None
    times: Annotated[
        bool,
        Flag(("--times",), "Compile it, and show the seconds and rewrites of each stage and pass."),
    ] = False
    kernels: Annotated[
        bool,
        Flag(("--kernels",), "Compile it, and show each kernel: its nodes, loops and source."),
    ] = False
    target: Annotated[
        str | None,
        Flag(
            ("--target",),
            "With --times, --kernels: compile with this target, not the case's own.",
        ),
    ] = None
    why: Annotated[
        bool,
        Flag(
            ("--why",),
            "For a case that minify or diagnose made: show the outcome of each edit to make "
            "it smaller, node by node, and which closest case passes.",
        ),
    ] = False
    why_not: Annotated[
        str | None,
        Flag(
            ("--why-not",),
            "Compile the case with ctk and say why a rule of a pass, or "
            "a decomposition (decompose.aten.gelu.default), did not fire.",
            metavar="RULE",
        ),
    ] = None
    trust: Annotated[
        bool, Flag(("--trust",), "Where it is compiled: run the code that the case brings along.")
    ] = False


def show(
    case: Annotated[
        Path,
        argument(
            "CASE", "A case folder, a folder that diagnose wrote, or a package.", complete_case
        ),
    ],
    options: ShowOptions,
) -> Answer:
    """Show a case, a pass of it, a diagnosis, or a package."""
    questions = {
        "--times": options.times,
        "--kernels": options.kernels,
        "--why-not": options.why_not is not None,
        "--pass": options.pass_number is not None,
        "--why": options.why,
    }
    asked = [name for name, is_asked in questions.items() if is_asked]
    refuse_alone(asked, options)
    if not asked:
        refuse_program(str(case))
    if case.is_file() and set(COMPILING).isdisjoint(asked):
        if asked:
            raise ConfigError(f"{case} is a file: {asked[0]} is for case folders")
        return show_package(case)
    if options.why:
        return show_why(case)
    if options.kernels:
        return show_kernels(case, options.target, trust=options.trust)
    if options.times:
        return show_times(case, options.target, trust=options.trust)
    if options.why_not is not None:
        return show_why_not(case, options.why_not, trust=options.trust)
    if (case / DIAGNOSIS).is_file():
        return show_diagnosis(case)
    if not case.is_dir():
        raise NoSuchCase(f"no such folder or package: {case}{near_file(case)}")
    if options.pass_number is not None:
        return show_pass(case, options.pass_number)
    return show_case(case)


def refuse_program(name: str) -> None:
    """Refuse a program, an archive or a test; the error has the command that makes a case."""
    from ctk.toolkit.importers import find_source

    if not Path(name.removeprefix("pytest:").partition(":")[0]).is_file():
        return
    try:
        source = find_source(name)
    except CaseError:  # a package
        return
    if not source.is_case_folder:
        raise NoSuchCase(
            f"{name} is a program; show takes a case or a package\n"
            f"  make a case of each graph: ctk check {quote(name)} --out cases"
        )


def refuse_alone(asked: Sequence[str], options: ShowOptions) -> None:
    """Raise for two questions at once, and for options that would do nothing."""
    if len(asked) > 1:
        raise ConfigError(f"{asked[0]} and {asked[1]} are two questions: ask one of them")
    if options.target is not None and {"--times", "--kernels"}.isdisjoint(asked):
        raise ConfigError("--target needs --times or --kernels: else nothing is compiled with it")
    if options.trust and set(COMPILING).isdisjoint(asked):
        raise ConfigError(f"--trust needs {' or '.join(COMPILING)}: else nothing is compiled")


def show_case(folder: Path) -> Answer:
    """Return the answer for a case folder."""
    from ctk.toolkit.case.admission import demands_in
    from ctk.toolkit.case.case_listing import count_calls
    from ctk.toolkit.case.case_replacement import whole_case
    from ctk.toolkit.case.manifest import MANIFEST, read_manifest
    from ctk.toolkit.watch.dump import DumpedKernel, DumpedPass, read_dumped

    whole = whole_case(folder)
    if not (whole / MANIFEST).exists():
        refuse_no_case(folder)
    manifest = read_manifest(whole)
    calls = count_calls(whole / "graph.json")
    hidden = ("schema", "name", "files", "symbols", "imports")
    facts = {key: value for key, value in document_data(manifest).items() if key not in hidden}
    passes, kernels = read_dumped(DumpedPass, folder), read_dumped(DumpedKernel, folder)
    code = text_of(whole, whole / "graph.py")
    state = f"fails: {manifest.signature}" if manifest.signature else "no failure recorded"
    size = "an unreadable graph" if calls is None else count_of(calls, "call")
    headline = f"case {manifest.name}: target {manifest.target}, {size}, {state}"
    demands = demands_in(folder)
    body: list[RenderableType] = [facts_table({k: v for k, v in facts.items() if k != "roles"})]
    body += [roles_table(manifest.roles)] if manifest.roles else []
    body += [demands_table(demands)] if demands else []
    body += [passes_table(passes)] if passes else []
    body += [kernels_table(kernels)] if kernels else []
    data = {"case": str(folder), "call_nodes": calls} | facts
    data |= {
        "demands": [
            {"kind": demand.kind, "what": demand.name, "where": demand.where} for demand in demands
        ]
    }
    data |= {"passes": [document_data(each) for each in passes]}
    data |= {"kernels": [document_data(kernel) for kernel in kernels], "graph": code}
    return Answer(
        ExitCode.NO_FAILURE, headline.splitlines()[0], data, (*body, highlight_code(code, "python"))
    )


def refuse_no_case(folder: Path) -> None:
    """Raise the error for a folder without a manifest; it names the cases below it."""
    from ctk.toolkit.case.case_listing import find_cases
    from ctk.toolkit.case.formats.folder_walk import Walk

    found = [entry for entry in find_cases(Walk(folder)) if entry.problem is None]
    hint = f"; there are cases in it: ctk show {quote(str(found[0].path))}" if found else ""
    raise NoSuchCase(
        f"{folder} is not a case: it has no manifest.json{hint}\n"
        f"  look at it: ctk ls {quote(str(folder))}"
    )


def facts_table(facts: Mapping[str, object]) -> Table:
    """Return one row per fact that is not empty."""
    rows = table("what", "value")
    for name, value in facts.items():
        if not _is_said(value):
            continue
        if isinstance(value, Mapping):
            items = cast("Mapping[str, object]", value).items()
            value = {key: each for key, each in items if _is_said(each)}
        rows.add_row(name, value if isinstance(value, str) else json.dumps(value, default=str))
    return rows


def roles_table(roles: "Mapping[str, Role]") -> Table:
    """Return one row per tensor that is more than a plain input."""
    columns = ("tensor of the graph", "in the program", "name", "static address")
    rows = ((key, role.kind, role.name, role.static or "") for key, role in roles.items())
    return table(*columns, rows=rows)


def _is_said(value: object) -> bool:
    return value is not None and value not in ("", {}, [])


def demands_table(demands: "tuple[Demand, ...]") -> Table:
    """Return one row per thing that needs trust."""
    parts = (str(demand).rpartition(" (") for demand in demands)
    rows = ((what, where.rstrip(")")) for what, _, where in parts)
    return table("needs --trust, because it", "says", rows=rows, is_whole=True)


def passes_table(passes: "list[DumpedPass]") -> Table:
    """Return one row per pass of a dump."""
    rows = table("N", "pass", "changed", "rewrites", "seconds")
    for each in passes:
        state = "vetoed" if each.vetoed else "yes" if each.changed else ""
        rows.add_row(str(each.number), each.pass_, state, str(each.rewrites), str(each.seconds))
    return rows


def kernels_table(kernels: "list[DumpedKernel]") -> Table:
    """Return one row per kernel of a dump; a kernel without nodes is the whole graph."""
    rows = table("kernel", "vetoed", "nodes", "seconds", "source")
    for kernel in kernels:
        nodes, source = (
            ", ".join(kernel.nodes) or "all",
            f"kernels/{kernel.file}" if kernel.file else "",
        )
        rows.add_row(
            kernel.kernel, "yes" if kernel.vetoed else "", nodes, str(kernel.seconds), source
        )
    return rows


def show_pass(folder: Path, number: int) -> Answer:
    """Return the answer for `--pass N`: the difference that the pass made."""
    from ctk.toolkit.watch.dump import find_dumped_diff

    dumped, path = find_dumped_diff(folder, number)
    head, data = f"pass {number} ({dumped.pass_})", {"pass": document_data(dumped)}
    if path is None:
        return Answer(ExitCode.NO_FAILURE, f"{head} changed nothing", data | {"diff": ""})
    diff = text_of(folder, path)
    data |= {"diff": diff, "path": str(path)}
    return Answer(ExitCode.NO_FAILURE, f"{head}: {path}", data, (highlight_code(diff, "diff"),))


def show_times(subject: Path, target: str | None, *, trust: bool) -> Answer:
    """Return the answer for `--times`: one compile of each graph, and where its time went."""
    from ctk.toolkit.operations.times import time_case
    from ctk.toolkit.oracle.open_subject import open_subject

    with open_subject(str(subject), None, AskOptions(target=target, trust=trust)) as it:
        found = [time_case(case) for case in it.cases]
    rows, whole = [times_table(each) for each in found], sum(each.seconds for each in found)
    by = ", ".join(dict.fromkeys(each.target for each in found))
    failed = [f"{each.case} raises {each.error}" for each in found if each.error]
    data = {"graphs": [asdict(each) | {"rest": each.rest} for each in found]}
    headline = f"{count_of(len(found), 'graph')} compiled with {by} in {whole:.2f} s"
    if failed:
        return Answer(ExitCode.CANNOT_TELL, f"cannot tell: {failed[0]}", data, tuple(rows))
    return Answer(ExitCode.NO_FAILURE, headline, data, tuple(rows))


def times_table(times: "Times") -> Table:
    """Return one row per stage, and below it one per step, the slowest first."""
    rows = table("stage", "step", "runs", "rewrites", "ms", "share")
    for stage in times.stages:
        rows.add_row(*time_cells(stage, times.seconds))
        inside = [step for step in times.steps if step.stage == stage.stage and step.seconds]
        for step in sorted(inside, key=lambda each: -each.seconds):
            rows.add_row("", *time_cells(step, times.seconds)[1:])
            for note in step.notes:
                rows.add_row("", f"  {note}", "", "", "", "")
    rest = f"{times.rest * 1000:.1f}", f"{times.rest / max(times.seconds, 1e-9):.0%}"
    rows.add_row("the rest", "tracing, wrappers, unreported steps", "", "", *rest)
    return rows


def time_cells(step: "StepTime", whole: float) -> tuple[str, ...]:
    """Return the cells of a step; of a whole compile of so many seconds."""
    share = f"{step.seconds / max(whole, 1e-9):.0%}"
    numbers = str(step.runs), str(step.rewrites), f"{step.seconds * 1000:.1f}", share
    return step.stage, step.name, *numbers


def show_kernels(subject: Path, target: str | None, *, trust: bool) -> Answer:
    """Return the answer for `--kernels`: the generated kernels of each graph of one compile."""
    from ctk.toolkit.compile_log.recorder import Recorder
    from ctk.toolkit.execution.execute import run_compiled
    from ctk.toolkit.oracle.open_subject import open_subject

    recorder = Recorder()
    with open_subject(str(subject), None, AskOptions(target=target, trust=trust)) as it:
        ran = [run_compiled(case, observer=recorder) for case in it.cases]
    failed = [each.error for each in ran if each.error]
    body: list[RenderableType] = []
    for kernel in recorder.log.kernels():
        state = "vetoed" if kernel.vetoed else f"{kernel.seconds * 1000:.1f} ms"
        body.append(f"\n{kernel.id}: {', '.join(kernel.nodes) or 'the whole graph'} ({state})")
        body += [highlight_code(kernel.ir, "text")] if kernel.ir else []
        language = {".c": "c", ".txt": "text"}.get(kernel.suffix, "python")
        body += [highlight_code(kernel.source, language)] if kernel.source else []
    data = {"kernels": [kernel_facts(kernel) for kernel in recorder.log.kernels()]}
    if failed:
        said = f"cannot tell all: {type(failed[0]).__name__}: {failed[0]}".partition("\n")[0]
        return Answer(ExitCode.CANNOT_TELL, said, data, tuple(body))
    headline = count_of(len(data["kernels"]), "kernel")
    return Answer(ExitCode.NO_FAILURE, headline, data, tuple(body))


def kernel_facts(record: "KernelRecord") -> Mapping[str, object]:
    """Return the JSON form of a kernel."""
    facts = {"kernel": str(record.id), "nodes": list(record.nodes), "vetoed": record.vetoed}
    return facts | {"seconds": record.seconds, "ir": record.ir, "source": record.source}


def show_why_not(subject: Path, rule: str, *, trust: bool = False) -> Answer:
    """Return the answer for `--why-not RULE`: its result in each run of its pass."""
    from ctk.compiler.options.config import resolve
    from ctk.compiler.rewriting.user_passes import resolve_pass
    from ctk.toolkit.compile_log.recorder import Recorder
    from ctk.toolkit.compile_log.unfired_rules import (
        DECOMPOSE,
        WhyNot,
        explain_operator,
        explain_rule,
    )
    from ctk.toolkit.execution.execute import run_compiled
    from ctk.toolkit.oracle.open_subject import open_subject

    found: list[WhyNot] = []
    with open_subject(str(subject), None, AskOptions(target="ctk", trust=trust)) as it:
        for case in it.cases:
            recorder, config = Recorder(), resolve(case.config)
            run_compiled(case, observer=recorder, is_called=False)
            if rule.startswith(DECOMPOSE):
                found.append(explain_operator(recorder.log, rule, config.decompositions))
                continue
            entries = [entry for slot in config.custom_passes.values() for entry in slot]
            found += explain_rule(recorder.log, rule, [*map(resolve_pass, entries)])
    headline = f"{rule}: fired {count_of(sum(each.fired for each in found), 'time')}"
    data = {"rule": rule, "runs": [document_data(each) for each in found]}
    return Answer(ExitCode.NO_FAILURE, headline, data, tuple(map(str, found)))


def show_diagnosis(folder: Path) -> Answer:
    """Return the answer for a folder that diagnose or bisect-pass wrote.

    Raises:
        CaseError: Its diagnosis.json cannot be read.
    """
    from ctk.toolkit.case.case_listing import find_cases
    from ctk.toolkit.case.formats.folder_walk import Walk
    from ctk.toolkit.operations.report.as_json import read_json
    from ctk.toolkit.operations.report.as_text import summary
    from ctk.toolkit.operations.session.operation_listing import is_done
    from ctk.toolkit.oracle.answers.resume_command import resume_hint

    record = read_json(folder)
    headline, *lines = summary(record, folder)
    cases = [str(entry.path) for entry in find_cases(Walk(folder)) if entry.problem is None]
    lines += [f"look at it: ctk show {quote(path)}" for path in cases]
    command = None if is_done(record) else resume_hint(folder)
    lines += [f"to go on: {command}"] if command else []
    found = {"folder": str(folder), "diagnosis": document_data(record)}
    return Answer(ExitCode.NO_FAILURE, headline, found, tuple(lines))


def text_of(folder: Path, path: Path) -> str:
    """Return a text file of a case folder; an empty text if there is none.

    Raises:
        CaseError: It is a link, no plain file, or too large to be shown.
    """
    from ctk.toolkit.case.formats.bounded_file import check_no_link, read_bounded
    from ctk.toolkit.case.formats.limits import TEXT_NBYTES

    check_no_link(folder, path)
    if not path.exists():
        return ""
    return read_bounded(path, TEXT_NBYTES).decode(encoding="utf-8", errors="replace")


COMMAND = Command("show", show)
