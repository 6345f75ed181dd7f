"""diagnose: check, bisect, minimize and emit a repro; one folder at the end.

OUT/diagnosis.json    what was found
OUT/case/             the failing case as captured
OUT/minimal/          the smallest case, with repro.py
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Literal

from ctk.toolkit.bisect import Culprit, Search, find_culprit
from ctk.toolkit.bisect.crashes import is_deadly
from ctk.toolkit.case.case import Case
from ctk.toolkit.case.store import load_case, save_case
from ctk.toolkit.compile_log.recorder import Recorder, Veto
from ctk.toolkit.oracle.executors import Executor
from ctk.toolkit.oracle.judge import judge
from ctk.toolkit.oracle.judgement import Judgement, Verdict
from ctk.toolkit.reduce.driver import Reduction, minimize
from ctk.toolkit.reduce.hint import hint_step
from ctk.toolkit.reduce.probe import first_wrong_node
from ctk.toolkit.reduce.problem import Budget, Problem, Progress
from ctk.toolkit.reduce.steps import STEPS
from ctk.toolkit.report.as_json import write_json
from ctk.toolkit.report.diagnosis import Diagnosis
from ctk.toolkit.repro.run import write_verified_repro

Say = Callable[[str], None]
InputsMode = Literal["full", "recipe", "none"]

NO_LIMIT = Budget()


def bisect_case(
    case: Case, out: Path, *, executor: Executor | None = None, say: Say = lambda _: None
) -> Diagnosis:
    """Find the culprit of a case and write `diagnosis.json`; the case is not made smaller.

    Args:
        case: The case in question.
        out: An existing folder.
        executor: A child process for failures that kill or stop this one; None: none is feared.
        say: Called with a line per step.
    """
    started = time.monotonic()
    search = find_culprit(case, executor=executor, on_progress=say)
    diagnosis = Diagnosis(case, search, time.monotonic() - started)
    write_json(diagnosis, out)
    return diagnosis


def diagnose(
    cases: Sequence[Case],
    out: Path,
    *,
    budget: Budget = NO_LIMIT,
    inputs: InputsMode = "full",
    executor: Executor | None = None,
    say: Say = lambda _: None,
    on_progress: Callable[[Progress], None] | None = None,
) -> Diagnosis:
    """Diagnose the first case that fails, and write everything into a folder.

    Args:
        cases: The graphs of one program, in order. Not empty.
        out: An existing empty folder.
        budget: What the reduction may use.
        inputs: How much of the input values the saved cases hold.
        executor: A child process for failures that kill or stop this one; None: none is feared.
        say: Called with a line per step.
        on_progress: Called after each question of the reduction.

    Returns:
        The diagnosis; of the last case when none fails.
    """
    started = time.monotonic()
    case, search = _first_failing(cases, executor, say)
    if search.judgement.verdict is not Verdict.REPRODUCES:
        diagnosis = Diagnosis(case, search, time.monotonic() - started)
        write_json(diagnosis, out)
        return diagnosis
    case = replace(case, signature=search.judgement.signature)
    save_case(case, out / "case", inputs=inputs)
    search = _with_wrong_node(case, search, say)
    hints = search.culprit.captured if search.culprit else ()
    deadly = executor if is_deadly(search.judgement) else None
    reduction = _reduce(case, budget, on_progress, hints=hints, executor=deadly)
    minimal_search = find_culprit(reduction.best, executor=executor, on_progress=say)
    if _slipped(search, minimal_search):
        say("the smallest case fails for another reason: reduce again, holding on to the culprit")
        assert search.culprit is not None
        reduction = _reduce(case, budget, on_progress, culprit=search.culprit, executor=deadly)
        minimal_search = find_culprit(reduction.best, executor=executor, on_progress=say)
    folder = save_case(reduction.best, out / "minimal", inputs=inputs)
    say("run the repro in a clean process")
    shown = reduction.best if inputs == "full" else _as_saved(reduction.best, folder)
    repro, run = write_verified_repro(shown, folder, _guilty_pass(minimal_search, search))
    diagnosis = Diagnosis(
        case,
        search,
        time.monotonic() - started,
        reduction=reduction,
        minimal_search=minimal_search,
        repro=repro,
        repro_run=run,
    )
    write_json(diagnosis, out)
    return diagnosis


def _first_failing(
    cases: Sequence[Case], executor: Executor | None, say: Say
) -> tuple[Case, Search]:
    found: list[tuple[Case, Search]] = []
    for case in cases:
        say(f"bisect {case.name}")
        found.append((case, find_culprit(case, executor=executor, on_progress=say)))
        if found[-1][1].judgement.verdict is Verdict.REPRODUCES:
            return found[-1]
    unclear = [f for f in found if f[1].judgement.verdict is not Verdict.PASSES]
    return (unclear or found)[-1]


def _reduce(
    case: Case,
    budget: Budget,
    on_progress: Callable[[Progress], None] | None,
    *,
    hints: Sequence[str] = (),
    culprit: Culprit | None = None,
    executor: Executor | None = None,
) -> Reduction:
    """Reduce a case, `hints` first; with a culprit, only to cases that pass once it is left out."""

    def ask(candidate: Case, veto: Veto | None = None) -> Judgement:
        if executor is not None:
            return executor.ask(candidate, case.signature, veto)
        watcher = Recorder(veto) if veto is not None else observer()
        return judge(candidate, expected=case.signature, observer=watcher)

    def oracle(candidate: Case) -> Judgement:
        judgement = ask(candidate)
        if culprit is None or judgement.verdict is not Verdict.REPRODUCES:
            return judgement
        without = Veto(passes=frozenset({culprit.where}))
        if ask(candidate, without).verdict is Verdict.PASSES:
            return judgement
        return replace(judgement, verdict=Verdict.DIFFERENT)

    def observer() -> Recorder | None:
        """An exception is the same only from the same pass, which takes an observer to know."""
        is_error = case.signature is not None and case.signature.exception is not None
        return Recorder() if is_error else None

    problem = Problem(case, oracle, budget=budget, on_progress=on_progress)
    return minimize(problem, (hint_step(hints), *STEPS))


def _with_wrong_node(case: Case, search: Search, say: Say) -> Search:
    """A guilty kernel names no node by itself: look which value it gets wrong first."""
    culprit, signature = search.culprit, search.judgement.signature
    if culprit is None or not culprit.is_kernel or culprit.captured or signature is None:
        return search
    if signature.kind not in ("accuracy", "nan"):
        return search
    say("compile with every value as an output, to see which one the kernel gets wrong first")
    names = first_wrong_node(case)
    found = replace(culprit, captured=names)
    return replace(search, culprit=found, compiles=search.compiles + 1)


def _as_saved(case: Case, folder: Path) -> Case:
    """Return the case with the values that its folder holds: a repro must not tell more."""
    return replace(case, inputs=load_case(folder).inputs, synthetic=load_case(folder).synthetic)


def _slipped(search: Search, minimal: Search) -> bool:
    """Return whether the smallest case has another culprit than the whole, whose is proved."""
    before, after = search.culprit, minimal.culprit
    if not search.confirmed or before is None or before.is_kernel:
        return False
    return after is None or _base(after.where) != _base(before.where)


def _base(where: str) -> str:
    return where.partition("#")[0]


def _guilty_pass(*searches: Search) -> str | None:
    """Return the guilty pass as `CTK_DISABLE` takes it; None for a kernel."""
    for search in searches:
        culprit = search.culprit
        if culprit is not None and not culprit.is_kernel and search.confirmed:
            return culprit.where
    return None
