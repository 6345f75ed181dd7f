"""minify: the smallest graph of a failing compile that fails for the same reason, with its repro.

The failure is bisected first: its culprit tells the reducer where to look, and holds it to that
failure. `diagnose` reduces through here as well, so both ask the same questions.

What it does not do: failures that are no wrong compile; for those there is `minimize`.
"""

import signal
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Unpack

from ctk.compiler.choices import InputsMode
from ctk.toolkit.bisect import Search, find_culprit
from ctk.toolkit.bisect_case import bisect_first_failing
from ctk.toolkit.case.case import Case
from ctk.toolkit.case.folders import output_folder
from ctk.toolkit.case.store import load_case, save_case
from ctk.toolkit.case.trust import trust_option
from ctk.toolkit.compile_log.recorder import Veto
from ctk.toolkit.importers import Inputs, Subject, name_of
from ctk.toolkit.oracle.executors.base import Executor
from ctk.toolkit.oracle.judgement import Judgement
from ctk.toolkit.oracle.progress import Say, silent
from ctk.toolkit.oracle.same_failure import same_failure
from ctk.toolkit.oracle.several import AskOptions, opened
from ctk.toolkit.reduce.best_case import BestCase
from ctk.toolkit.reduce.driver import Reduction, minimize
from ctk.toolkit.reduce.hint import hint_step
from ctk.toolkit.reduce.problem import Budget, Problem, Progress
from ctk.toolkit.reduce.steps import STEPS
from ctk.toolkit.repro.run import ReproRun, write_verified_repro

OnProgress = Callable[[Progress], None]

NO_LIMIT = Budget()


@dataclass(frozen=True, slots=True)
class Minified:
    """The result of `minify`.

    Attributes:
        case: The first case that fails, with its signature; else the one that tells most.
        search: What it shows, and who causes it.
        reduction: The smallest case and how it was found; None when nothing fails.
        folder: Where the smallest case was written.
        repro: Its script.
        repro_run: What the script showed in a clean process.
    """

    case: Case
    search: Search
    reduction: Reduction | None = None
    folder: Path | None = None
    repro: Path | None = None
    repro_run: ReproRun | None = None

    @property
    def judgement(self) -> Judgement:
        return self.search.judgement


def minify(
    subject: Subject,
    inputs: Inputs | None = None,
    *,
    out: str | Path | None = None,
    keep: InputsMode = "full",
    max_questions: int | None = None,
    max_seconds: float | None = None,
    say: Say = silent,
    on_progress: OnProgress | None = None,
    **options: Unpack[AskOptions],
) -> Minified:
    """Make the first failing graph of a program as small as possible, and write it with its repro.

    >>> import ctk, torch
    >>> found = ctk.minify("examples/broken_pass.py", out="small")
    >>> [node.name for node in found.reduction.graph.graph.nodes if node.op == "call_function"]
    ['mul_5', 'input_12']

    Args:
        subject: A program or case by name, a `Case`, a `GraphModule`, or a callable.
        inputs: Those of one call, for a graph or a callable.
        out: Folder to write to; None makes `minimal_<name>` here, once there is a failure.
        keep: What the written case keeps of its inputs: values, a recipe for similar ones, nothing.
        max_questions: Stop reducing after so many questions.
        max_seconds: Stop reducing after so long.
        say: Told what happens.
        on_progress: Called after each question of the reduction.
        options: `target`, `config`, `backward`, `dynamic`, `graph`, `allow_imports`, `isolate`,
            `timeout_seconds`.

    Returns:
        The result; without a reduction when nothing fails. Ctrl-C ends the reduction early
        and keeps the best so far.
    """
    with opened(subject, inputs, options) as (cases, executor):
        case, search = bisect_first_failing(cases, executor, say)
        if not search.judgement.fails:
            return Minified(case, search)
        case = replace(case, signature=search.judgement.signature)
        folder = output_folder(out, f"minimal_{name_of(subject)}")
        best = BestCase(folder / "case", keep)
        with best.kept(f"ctk minify {best.folder}{trust_option(case)}"):
            reduction, minimal = reduce_case(
                case,
                search,
                executor,
                best=best,
                budget=Budget(max_questions, max_seconds),
                say=say,
                on_progress=on_progress,
            )
            with uninterrupted():
                say("run the repro in a clean process")
                script, seen = write_result(reduction, best, minimal, search)
    return Minified(case, search, reduction, best.folder, script, seen)


def reduce_case(
    case: Case,
    search: Search,
    executor: Executor,
    *,
    best: BestCase,
    budget: Budget = NO_LIMIT,
    say: Say = silent,
    on_progress: OnProgress | None = None,
) -> tuple[Reduction, Search | None]:
    """Reduce a failing case; the culprit's nodes are tried first.

    Args:
        case: Has the signature of its failure.
        search: Its bisection.
        executor: Who answers.
        best: Writes each smaller case.
        budget: What may be used.
        say: Told what happens.
        on_progress: Called after each question.

    Returns:
        The reduction, and the bisection of the smallest case; None when it was interrupted.
    """

    def run(cause: bool) -> Reduction:
        def after_question(state: Progress) -> None:
            best.tick()
            if on_progress:
                on_progress(state)

        hints = search.culprit.captured if search.culprit and not cause else ()
        veto = Veto(passes=frozenset({search.culprit.where})) if search.culprit and cause else None
        problem = Problem(
            case,
            same_failure(case, executor, cause=veto),
            budget=budget,
            on_progress=after_question,
            on_improvement=best.improved,
        )
        return minimize(problem, (hint_step(hints), *STEPS))

    reduction = run(cause=False)
    minimal = _bisect_again(reduction, executor, say)
    if minimal is not None and _slipped(search, minimal):
        say("the smallest case fails for another reason: reduce again, holding on to the culprit")
        reduction = run(cause=True)
        minimal = _bisect_again(reduction, executor, say)
    return reduction, minimal


def _bisect_again(reduction: Reduction, executor: Executor, say: Say) -> Search | None:
    if reduction.reason == "interrupted":
        return None
    try:
        return find_culprit(reduction.best, executor=executor, on_progress=say)
    except KeyboardInterrupt:
        return None


def _slipped(search: Search, minimal: Search) -> bool:
    """Return whether the smallest case has another culprit than the whole, whose is proved."""
    before, after = search.culprit, minimal.culprit
    if not search.confirmed or before is None or before.is_kernel:
        return False
    return after is None or _base(after.where) != _base(before.where)


def _base(where: str) -> str:
    return where.partition("#")[0]


def write_result(
    reduction: Reduction, best: BestCase, *searches: Search | None
) -> tuple[Path, ReproRun]:
    """Write the smallest case with a repro that was run; the header names the culprit if proved."""
    folder = save_case(reduction.best, best.folder, inputs=best.keep, overwrite=True)
    best.saved = True
    shown = reduction.best if best.keep == "full" else _as_saved(reduction.best, folder)
    return write_verified_repro(shown, folder, _guilty_pass(*searches))


def _as_saved(case: Case, folder: Path) -> Case:
    """Return the case with the values that its folder holds: a repro must not tell more."""
    saved = load_case(folder, trust=True)
    return replace(case, inputs=saved.inputs, synthetic=saved.synthetic)


def _guilty_pass(*searches: Search | None) -> str | None:
    """Return the guilty pass as `CTK_DISABLE` takes it; None for a kernel."""
    for search in searches:
        culprit = search.culprit if search else None
        if search and culprit is not None and not culprit.is_kernel and search.confirmed:
            return culprit.where
    return None


@contextmanager
def uninterrupted() -> Generator[None]:
    """Put off Ctrl-C while the result is written; only the main thread gets it anyway."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    previous = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, previous)
