"""minify: the smallest graph of a failing compile that fails for the same reason, with its repro.

The failure is bisected first: its culprit tells the reducer where to look, and holds it to that
failure. `diagnose` reduces through here as well, so both ask the same questions.

OUT/case/         the smallest case so far, at the end with repro.py and certificate.json
OUT/neighbour/    the closest case that passes
OUT/history.svg   how small it was after each question
OUT/others/       other failures that were met on the way; the rest: `operation/`

Where the user asks another question (a command, a function, time, memory), nothing is bisected:
`operation/own_question.py`.
"""

from dataclasses import replace
from pathlib import Path
from typing import Unpack

from ctk.compiler.errors import DoesNotReproduce
from ctk.compiler.options.choices import InputsMode, SameRule
from ctk.toolkit.bisect import Search
from ctk.toolkit.bisect.questions import NO_KERNELS
from ctk.toolkit.case.case import Case
from ctk.toolkit.case.judgement import Verdict
from ctk.toolkit.compile_log.recorder import Veto
from ctk.toolkit.importers import Inputs, Subject
from ctk.toolkit.operations.report.diagnosis import Diagnosis
from ctk.toolkit.operations.session.asking import Asking, asking_same, steadied
from ctk.toolkit.operations.session.history import OnProgress
from ctk.toolkit.operations.session.mute_torch import quiet
from ctk.toolkit.operations.session.opening import discard, operation
from ctk.toolkit.operations.session.operation_keywords import MinifyOptions, sorted_keywords
from ctk.toolkit.operations.session.own_question import is_measured, reduced_for_user, seen_again
from ctk.toolkit.operations.session.reducing import Work, finished, work_on
from ctk.toolkit.operations.session.relevant_options import ask_options
from ctk.toolkit.operations.session.running_operation import Operation
from ctk.toolkit.operations.session.smallest_repro import Written, guilty_pass, repro_of
from ctk.toolkit.operations.session.whole_program import explained
from ctk.toolkit.oracle.choice import Choice
from ctk.toolkit.oracle.progress import Say, silent
from ctk.toolkit.oracle.same_failure import SameFailure, is_other
from ctk.toolkit.reduce.driver import Reduction
from ctk.toolkit.reduce.progress import Budget, budget_of
from ctk.toolkit.targets import traits_of


def minify(
    subject: Subject,
    inputs: Inputs | None = None,
    *,
    out: str | Path | None = None,
    resume: bool = False,
    keep: InputsMode = "full",
    max_questions: int | None = None,
    max_seconds: float | None = None,
    say: Say = silent,
    on_progress: OnProgress | None = None,
    **options: Unpack[MinifyOptions],
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
        say: Told what happens.
        on_progress: Called after each question of the reduction.
        options: `target`, `config`, `backward`, `dynamic`, `graph`, `allow_imports`, `isolate`,
            `timeout_seconds`, `jobs`, `same_failure` (see `ReduceOptions`); to ask another question
            `oracle`, `command`, `match`, `slower_than`, `memory_above` (see `MinifyOptions`).

    Returns:
        The result; without a reduction when nothing fails. Ctrl-C, and an error of ours, end the
        reduction early and keep the best so far.

    Raises:
        ConfigError: There is no such program or function, or a limit or choice is none.
        DoesNotReproduce: It fails at random, and too rarely to be reduced.
    """
    budget = budget_of(max_questions, max_seconds)
    given = sorted_keywords(options)
    with operation(
        "minify", subject, inputs, given, out=out, resume=resume, keep=keep, say=say
    ) as run:
        return _minified(run, given.choice, budget, on_progress)


def _minified(
    run: Operation, choice: Choice, budget: Budget, on_progress: OnProgress | None
) -> Diagnosis:
    """Ask the question that was chosen, and reduce what fails."""
    if choice.is_own:  # what a function of the user says is his
        return reduced_for_user(run, choice, budget, on_progress)
    if choice.measured or is_measured(run):
        with quiet():
            return reduced_for_user(run, choice, budget, on_progress)
    found = run.bisected()
    if found.is_shown_by_no_graph:
        return explained(run, run.folder / "case", budget)
    if not found.judgement.fails and not seen_again(run):
        discard(run)
        return replace(found, folder=None, state="finished")
    return reduced(run, run.folder / "case", budget, on_progress, rule=choice.same)


@quiet()
def reduced(
    run: Operation,
    folder: Path,
    budget: Budget,
    on_progress: OnProgress | None,
    *,
    rule: SameRule | None = None,
    with_options: bool = False,
) -> Diagnosis:
    """Reduce the failing case that was bisected, and write the result; finishes the operation.

    Args:
        run: Knows the case and its culprit.
        folder: For the smallest case.
        budget: What may be used.
        on_progress: Called after each question.
        rule: What makes two failures the same, if not their signatures.
        with_options: Ask which options of the target matter, too.
    """
    work = work_on(run, folder, budget, on_progress)
    reduction, minimal, is_interrupted = _reduced(work, rule)
    is_over = reduction.reason in ("questions", "seconds")

    def write(smallest: Case, is_interrupted: bool) -> Written:
        assert run.found is not None and run.found.case is not None
        is_same = not is_other(run.found.case, smallest)
        culprit = guilty_pass(minimal, run.found.search if is_same else None)
        script, seen, is_interrupted = repro_of(
            run, smallest, folder, culprit, is_interrupted=is_interrupted
        )
        if with_options and not is_interrupted and not is_over:
            is_interrupted = not ask_options(run, smallest)
        return script, seen, is_interrupted

    return finished(work, reduction, write, minimal, is_interrupted=is_interrupted)


def _reduced(work: Work, rule: SameRule | None) -> tuple[Reduction, Search | None, bool]:
    """Reduce the case; the culprit's nodes are tried first.

    Returns:
        The reduction, the bisection of the smallest case (None when there is none), and whether
        Ctrl-C has ended it.
    """
    run = work.run
    assert run.found is not None and run.found.case is not None
    case, search = run.found.case, run.found.search
    base = _without_code(run, case, search)
    asking = _asking(run, SameFailure(case, run.executor, None, base, rule))
    if asking.repeated is None:
        hints = search.culprit.captured if search.culprit else ()
        reduction = work.attempt(case, asking, hints, _guilty(search))
    else:
        reduction = work.attempt(case, asking)
    if reduction.flakiness is not None:
        run.write(search=Search(search.judgement, reason=_BY_CHANCE, compiles=search.compiles))
        return reduction, None, reduction.reason == "interrupted"
    minimal = None
    try:
        if reduction.reason != "interrupted":
            minimal = _bisected_again(run, reduction)
        is_held = rule not in ("type", "any")
        if minimal is not None and is_held and _slipped(search, minimal):
            reduction, minimal = _held(work, reduction, minimal, rule)
    except DoesNotReproduce as error:
        run.complained(f"the smallest case may fail for another reason: {error}")
    except KeyboardInterrupt:
        return reduction, None, True
    return reduction, minimal, reduction.reason == "interrupted"


def _held(
    work: Work, slipped: Reduction, minimal: Search, rule: SameRule | None
) -> tuple[Reduction, Search | None]:
    """Reduce the case again, held to its culprit, with what the first search left of the budget.

    Raises:
        DoesNotReproduce: The case passes without its culprit, or does not fail with it.
    """
    run = work.run
    assert run.found is not None and run.found.case is not None
    case, culprit = run.found.case, run.found.search.culprit
    assert culprit is not None
    if slipped.reason in ("questions", "seconds"):
        run.complained(f"the smallest case fails for another reason than {culprit.where}")
        return slipped, minimal
    run.say("the smallest case fails for another reason: reduce again, holding the culprit")
    work.best.start_again()
    cause = Veto(passes=frozenset({culprit.where}))
    same = SameFailure(case, run.executor, cause, None, rule)
    reduction = work.attempt(case, asking_same(run, same), before=slipped)
    is_bisected = reduction.reason != "interrupted" and reduction.flakiness is None
    return reduction, _bisected_again(run, reduction) if is_bisected else None


def _guilty(search: Search) -> frozenset[str]:
    """Return the guilty pass, if a pass is to blame."""
    culprit = search.culprit
    is_pass = culprit is not None and not culprit.is_kernel
    return frozenset({_base(culprit.where)}) if culprit is not None and is_pass else frozenset()


_BY_CHANCE = "it fails in some runs only: a pass that is left out proves nothing"


def _asking(run: Operation, same: SameFailure) -> Asking:
    """Return the question, asked as often as it must be; the bisection's answer is one already.

    Of a failure that kills, the bisection has only seen what a child said, and that is remembered.
    """
    assert run.found is not None
    asking, first = asking_same(run, same), run.found.search.judgement
    answer = asking.oracle(same.case)
    is_one = answer == first and first.signature is not None and first.signature.is_deadly
    answers = [answer] if is_one else [first, answer]
    return steadied(run, asking, same.case, answers)


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
