"""`ctk show CASE --times`, `--kernels`: the kernels of one compile of a case, or its times."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import RenderableType
from rich.syntax import Syntax
from rich.table import Table

from ctk.toolkit.cli.shell.answer import Answer, ExitCode, table
from ctk.toolkit.options import AskOptions

if TYPE_CHECKING:
    from ctk.compiler.observe import KernelRecord
    from ctk.toolkit.operations.times import StepTime, Times


def show_times(subject: Path, target: str | None, *, trust: bool) -> Answer:
    """Return the answer for `--times`: one compile of each graph, and where its time went."""
    from dataclasses import asdict

    from ctk.toolkit.operations.times import time_case
    from ctk.toolkit.oracle.open_subject import open_subject

    with open_subject(str(subject), None, AskOptions(target=target, trust=trust)) as it:
        found = [time_case(case) for case in it.cases]
    rows, whole = [times_table(each) for each in found], sum(each.seconds for each in found)
    by = ", ".join(dict.fromkeys(each.target for each in found))
    failed = [f"{each.case} raises {each.error}" for each in found if each.error]
    data = {"graphs": [asdict(each) | {"rest": each.rest} for each in found]}
    headline = f"{len(found)} graph(s) compiled with {by} in {whole:.2f} s"
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
        ran = [run_compiled(each, observer=recorder) for each in it.cases]
    failed = [each.error for each in ran if each.error]
    body: list[RenderableType] = []
    for each in recorder.log.kernels():
        state = "vetoed" if each.vetoed else f"{each.seconds * 1000:.1f} ms"
        body.append(f"\n{each.id}: {', '.join(each.nodes) or 'the whole graph'} ({state})")
        body += [highlight_code(each.ir, "text")] if each.ir else []
        language = {".c": "c", ".txt": "text"}.get(each.suffix, "python")
        body += [highlight_code(each.source, language)] if each.source else []
    data = {"kernels": [kernel_facts(each) for each in recorder.log.kernels()]}
    if failed:
        said = f"cannot tell all: {type(failed[0]).__name__}: {failed[0]}".partition("\n")[0]
        return Answer(ExitCode.CANNOT_TELL, said, data, tuple(body))
    headline = f"{len(data['kernels'])} kernel(s)"
    return Answer(ExitCode.NO_FAILURE, headline, data, tuple(body))


def kernel_facts(record: "KernelRecord") -> Mapping[str, object]:
    """Return the JSON form of a kernel."""
    facts = {"kernel": str(record.id), "nodes": list(record.nodes), "vetoed": record.vetoed}
    return facts | {"seconds": record.seconds, "ir": record.ir, "source": record.source}


def highlight_code(code: str, language: str) -> Syntax:
    """Return code for a terminal, wrapped; in a log it is printed as it is."""
    return Syntax(code, language, word_wrap=True, background_color="default")
