"""minify: the smallest graph of a failing compile that fails for the same reason, with its repro.

The failure is bisected first: its culprit tells the reducer where to look, and holds it to that
failure. `diagnose` reduces through here as well, so both ask the same questions.

OUT/case/         the smallest case so far, at the end with repro.py and certificate.json
OUT/neighbour/    the closest case that passes; the rest: `operation/`

What it does not do: failures that are no wrong compile; for those there is `minimize`.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Unpack

from ctk.compiler.choices import ExecutorName, InputsMode
from ctk.compiler.errors import DoesNotReproduce, StorageError
from ctk.toolkit.bisect import Search
from ctk.toolkit.bisect.questions import NO_KERNELS
from ctk.toolkit.case.case import Case
from ctk.toolkit.case.judgement import Verdict
from ctk.toolkit.case.store import load_case
from ctk.toolkit.compile_log.recorder import Veto
from ctk.toolkit.importers import Inputs, Subject
from ctk.toolkit.operation.at_work import Operation
from ctk.toolkit.operation.best_case import BestCase
from ctk.toolkit.operation.opening import discard, operation
from ctk.toolkit.operation.options import ask_options
from ctk.toolkit.operation.whole_program import explained
from ctk.toolkit.oracle.ahead import asked_ahead
from ctk.toolkit.oracle.cache import fingerprint
from ctk.toolkit.oracle.executors.base import Executor, jobs_of
from ctk.toolkit.oracle.progress import Say, silent
from ctk.toolkit.oracle.same_failure import SameFailure
from ctk.toolkit.oracle.several import AskOptions
from ctk.toolkit.reduce.driver import Reduction, minimize
from ctk.toolkit.reduce.hint import hint_step
from ctk.toolkit.reduce.problem import Budget, Problem, Progress, budget_of
from ctk.toolkit.reduce.steps import STEPS
from ctk.toolkit.reduce.steps.leave_out_passes import only_these
from ctk.toolkit.report.diagnosis import Diagnosis
from ctk.toolkit.repro.run import REPRO, ReproRun, write_repro, write_verified_repro
from ctk.toolkit.repro.script import limits_of
from ctk.toolkit.targets import traits_of

OnProgress = Callable[[Progress], None]


def minify(
    subject: Subject,
    inputs: Inputs | None = None,
    *,
    out: str | Path | None = None,
    resume: bool = False,
    keep: InputsMode = "full",
    max_questions: int | None = None,
    max_seconds: float | None = None,
    jobs: int = 1,
    executor: ExecutorName = "local",
    resources: Mapping[str, float] | None = None,
    say: Say = silent,
    on_progress: OnProgress | None = None,
    **options: Unpack[AskOptions],
) -> Diagnosis:
    """Make the first failing graph of a program as small as possible, and write it with its repro.

    >>> import ctk, torch
    >>> found = ctk.minify("examples/broken_pass.py", out="small")
    >>> [node.name for node in found.reduction.graph.graph.nodes if node.op == "call_function"]
    ['mul_5', 'input_12']

    Args:
        subject: A program or case by name, a `Case`, a `GraphModule`, or a callable.
        inputs: Those of one call, for a graph or a callable.
        out: Folder to write to; None makes `minimal_<name>` here. It is removed if nothing fails.
        resume: Go on in the folder that an earlier, ended run has left, and ask nothing again.
        keep: What the written case keeps of its inputs: values, a recipe for similar ones, nothing.
        max_questions: Stop reducing after so many questions.
        max_seconds: Stop reducing after so long.
        jobs: How many candidates are asked about at the same time, each in a child process, with
            the same result as one after the other; 0: one per core.
        executor: Where: on this machine (`local`), or on those of a Ray cluster (`ray`).
        resources: What one question takes of the cluster: `{"CPU": 1, "GPU": 0.5}`.
        say: Told what happens.
        on_progress: Called after each question of the reduction.
        options: `target`, `config`, `backward`, `dynamic`, `graph`, `allow_imports`, `isolate`,
            `timeout_seconds`.

    Returns:
        The result; without a reduction when nothing fails. Ctrl-C, and an error of ours, end the
        reduction early and keep the best so far.
    """
    budget = budget_of(max_questions, max_seconds)
    at_once = jobs_of(jobs, executor, resources)
    with operation(
        "minify",
        subject,
        inputs,
        options,
        out=out,
        resume=resume,
        keep=keep,
        say=say,
        jobs=at_once,
    ) as run:
        found = run.bisected()
        if not found.judgement.fails:
            discard(run)
            return replace(found, folder=None, state="finished")
        if found.is_shown_by_no_graph:
            return explained(run, run.folder / "case", budget)
        return reduced(run, run.folder / "case", budget, on_progress)


def reduced(
    run: Operation,
    folder: Path,
    budget: Budget,
    on_progress: OnProgress | None,
    *,
    with_options: bool = False,
) -> Diagnosis:
    """Reduce the failing case that was bisected, and write the result; finishes the operation.

    Args:
        run: Knows the case and its culprit.
        folder: For the smallest case.
        budget: What may be used.
        on_progress: Called after each question.
        with_options: Ask which options of the target matter, too.
    """

    best = BestCase(run, folder)
    reduction, minimal, is_interrupted = _reduced(run, best, budget, on_progress)
    run.complained(*reduction.problems)
    run.keep_tracebacks(reduction.errors)
    if not best.improved(reduction.best):
        return run.finish(is_done=False, reduction=reduction, is_interrupted=is_interrupted)
    script, seen, is_interrupted = _repro(run, reduction, folder, minimal, is_interrupted)
    if with_options and not is_interrupted and reduction.reason not in ("questions", "seconds"):
        is_interrupted = not ask_options(run, reduction.best)
    return run.finish(
        is_done=reduction.finished,
        reduction=reduction,
        minimal_search=minimal,
        minimal=folder,
        repro=script,
        repro_run=seen,
        is_interrupted=is_interrupted,
    )


def _reduced(
    run: Operation, best: BestCase, budget: Budget, on_progress: OnProgress | None
) -> tuple[Reduction, Search | None, bool]:
    """Reduce the case; the culprit's nodes are tried first.

    Returns:
        The reduction, the bisection of the smallest case (None when there is none), and whether
        Ctrl-C has ended it.
    """
    assert run.found is not None and run.found.case is not None
    case, search = run.found.case, run.found.search
    base = _without_code(run, case, search)

    def attempt(cause: bool) -> Reduction:
        hints = search.culprit.captured if search.culprit and not cause else ()
        veto = Veto(passes=frozenset({search.culprit.where})) if search.culprit and cause else None

        def oracle_with(executor: Executor) -> SameFailure:
            return SameFailure(case, executor, veto, base if not cause else None)

        with asked_ahead(run.executor, oracle_with, run.digests) as oracle:
            problem = Problem(
                case,
                oracle,
                recall=oracle.recall,
                budget=budget,
                on_progress=on_progress,
                on_improvement=best.improved,
                digests=run.digests,
            )
            found = minimize(problem, (only_these(_guilty(search)), hint_step(hints), *STEPS))
        best.certify(found)
        return found

    reduction = attempt(cause=False)
    minimal = None
    try:
        if reduction.reason != "interrupted":
            minimal = _bisected_again(run, reduction)
        if minimal is not None and _slipped(search, minimal):
            run.say("the smallest case fails for another reason: reduce again, holding the culprit")
            best.start_again()
            reduction = attempt(cause=True)
            if reduction.reason != "interrupted":
                minimal = _bisected_again(run, reduction)
    except DoesNotReproduce as error:
        run.complained(f"the smallest case may fail for another reason: {error}")
    except KeyboardInterrupt:
        return reduction, None, True
    return reduction, minimal, reduction.reason == "interrupted"


def _guilty(search: Search) -> frozenset[str]:
    """Return the guilty pass, if a pass is to blame."""
    culprit = search.culprit
    is_pass = culprit is not None and not culprit.is_kernel
    return frozenset({_base(culprit.where)}) if culprit is not None and is_pass else frozenset()


def _without_code(run: Operation, case: Case, search: Search) -> Veto | None:
    """Return the veto of all kernels, if a pass is guilty and the case fails without them, too.

    Questions then generate no code, which is most of their cost; the smallest case is compiled as
    a whole when it is bisected.
    """
    culprit, signature = search.culprit, search.judgement.signature
    if culprit is None or not search.confirmed or culprit.stage == "lowered":
        return None
    if signature is None or not signature.is_numeric or traits_of(case.target).is_quick:
        return None
    answer = run.executor.ask(case, signature, NO_KERNELS)
    run.say(f"with every kernel in eager: {answer.verdict.value}")
    return NO_KERNELS if answer.verdict is Verdict.REPRODUCES else None


def _bisected_again(run: Operation, reduction: Reduction) -> Search | None:
    try:
        return run.search(reduction.best)
    except Exception as error:
        run.stumbled("the bisection of the smallest case", error)
        return None


def _slipped(search: Search, minimal: Search) -> bool:
    """Return whether the smallest case has another culprit than the whole, whose is proved."""
    before, after = search.culprit, minimal.culprit
    if not search.confirmed or before is None or before.is_kernel:
        return False
    return after is None or _base(after.where) != _base(before.where)


def _base(where: str) -> str:
    return where.partition("#")[0]


def _repro(
    run: Operation, reduction: Reduction, folder: Path, minimal: Search | None, is_interrupted: bool
) -> tuple[Path | None, ReproRun | None, bool]:
    """Write the script of the smallest case and run it; after Ctrl-C it is not run.

    Returns:
        The script, what it showed, and whether Ctrl-C has come by now.
    """
    assert run.found is not None
    key = fingerprint(reduction.best, run.digests)
    script = folder / REPRO
    known = run.journal.recall(ReproRun, key)
    if known is not None and script.is_file():
        return script, known, is_interrupted
    culprit = _guilty_pass(minimal, run.found.search)
    subject = run.subject
    limits = limits_of(reduction.best.signature, subject.timeout_seconds, subject.memory_nbytes)
    try:
        shown = reduction.best if run.keep == "full" else _as_saved(reduction.best, folder)
        if not is_interrupted:
            run.say("run the repro in a clean process")
            try:
                script, seen = write_verified_repro(shown, folder, culprit, limits)
            except KeyboardInterrupt:
                is_interrupted = True
            else:
                run.journal.note(key, replace(seen, output=seen.output[-2000:]))
                return script, seen, False
        run.complained("interrupted: the repro was written, but not run")
        return write_repro(shown, folder, culprit, limits), None, True
    except (StorageError, OSError) as error:
        run.not_saved(REPRO, error)
        return None, None, is_interrupted
    except Exception as error:
        run.stumbled("writing the repro", error)
        return None, None, is_interrupted


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
