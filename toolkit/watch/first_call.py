"""Check a call of a compiled graph against eager, on copies, before the program's own call.

The first call of each graph is checked, and its later calls in compared calls (whole_call.py).

The program is not affected: the check runs on copies of all state that the graph can reach
(state_copy.py). Five kinds of graphs:

1. It reaches its inputs only, as for a model, whose parameters Dynamo makes inputs: the compiled
   graph itself is called with copies.
2. It holds state of its own, as the step of an optimizer holds parameters: `p = self.param` and
   `p.add_(grad, alpha=-0.1)`. So does the compiled graph, whose second call would be a second step.
   So the target compiles a *twin*: copies of graph, state and inputs. The twin is run and, with a
   `log`, checked pass by pass; the program's own compiled graph is called once, by the program.
3. It draws random numbers, and the target draws them in its own way (Inductor): a twin that draws
   as eager does is checked.
4. Its first call differs from later ones (TorchScript on a GPU profiles it, then fuses, with other
   roundings): a twin is checked, so that the program's first call is still the first.
5. DDPOptimizer made it, one of several graphs of a frame: torch compiles their backward graphs in
   the order in which the program needs them, so a check may not. A twin is checked.

A compiled graph that is a Python function of the user may keep state, such as a count of its calls:
the check restores it (python_state.py), so that the program's own call finds it as it was.

Cost of each checked call: two copies of inputs and held state (weights included), the graph in
eager, the compiled graph with its backward pass when gradients are on (which compiles a lazy
backward now instead of later), a compile of the twin, and, if a bit differs, the graph in float64.
Only a mismatch costs one more compile: it is judged again from scratch, so that random numbers and
races are not reported as miscompiles. A `log` adds the graph before and after each pass that
changed it, twice.
"""

import dataclasses
import logging
import threading
from collections.abc import Callable, Generator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field

import torch
from torch.fx import Graph, GraphModule

from ctk.compiler.observe import first_line
from ctk.compiler.torch_compat.aot.autograd import without_saved_tensor_hooks
from ctk.compiler.torch_compat.inductor import inductor_api as inductor
from ctk.repro_templates.numbers.compare import compare_runs, runs_identical
from ctk.repro_templates.numbers.errors import Mismatch
from ctk.toolkit.case.case import Case
from ctk.toolkit.case.failure import Signature
from ctk.toolkit.case.judgement import Judgement, Verdict
from ctk.toolkit.compile_log.check import Finding, check_log
from ctk.toolkit.compile_log.recorder import CompileLog, Recorder
from ctk.toolkit.compile_log.trace.document import Trace
from ctk.toolkit.compile_log.trace.writing import make_trace
from ctk.toolkit.execution.execute import Outcome, run_compiled, run_eager, run_graph, run_reference
from ctk.toolkit.execution.modes import keep_default_dtype
from ctk.toolkit.execution.private_copy import held_state
from ctk.toolkit.execution.python_state import keep_python_state, keep_state
from ctk.toolkit.oracle.questions.judge import (
    error_signature,
    judge,
    judge_outcomes,
    mismatch_signature,
)
from ctk.toolkit.watch.announce import Subject

logger = logging.getLogger("ctk")


@dataclass(frozen=True, slots=True)
class CheckedCall:
    """The result of the check of a call.

    Attributes:
        details: Sentences on measured errors and the first wrong pass.
        note: Why there is no verdict; empty if there is one.
        excuse: The cause of a difference that is not a failure; empty if there is none.
        hidden: Sentences on passes that change values without effect on the results: no failure.
        trace: The compile of a wrong result whose passes were checked.
        drew_random: Whether the graph draws random numbers, so that a check draws others.
    """

    signature: Signature | None = None
    error: BaseException | None = None
    details: tuple[str, ...] = ()
    note: str = ""
    excuse: str = ""
    hidden: tuple[str, ...] = ()
    trace: Trace | None = field(default=None, repr=False)
    drew_random: bool = False


@contextmanager
def hold_compile_lock() -> Generator[None]:
    """Hold Dynamo's compile lock, with autograd in this thread, until the block ends.

    A compile and a check use the same process-wide state of torch: the metadata that FX records
    while AOTAutograd traces, the generators, which Dynamo restores after tracing, Inductor's hooks.
    So a check holds the re-entrant lock under which Dynamo compiles, and no other lock, so that no
    order of locks can be wrong. The backward pass of a check may be compiled at its first call,
    under the same lock; threads of autograd would wait for it forever, so autograd runs in this
    thread.

        thread 1                                  thread 2
        first call: takes the lock                calls a compiled graph: runs
          eager, compiled, backward (compiles)    meets a new graph: waits for the lock
        releases it, makes the program's call     compiles

    Other threads may still run and draw random numbers. While there are any, a float64 reference
    keeps the default dtype, which they share.
    """
    with ExitStack() as stack:
        stack.enter_context(inductor.compile_lock())
        stack.enter_context(torch.autograd.set_multithreading_enabled(False))
        if threading.active_count() > 1:
            stack.enter_context(keep_default_dtype())
        yield


def check_call(
    case: Case,
    subject: Subject,
    compiled: Callable[..., object],
    *,
    log: CompileLog | None = None,
    own_compile: bool = False,
) -> CheckedCall:
    """Run a graph in eager and compiled, and compare. Never raises: a failing check is a `note`.

    The caller holds `hold_compile_lock()`: two checks at once would restore torch's generators
    crosswise.

    Args:
        log: The events of its compile, calls included, to check every pass; None: only compare
            results.
        own_compile: Check a twin, also where the compiled graph itself could be called.
    """
    try:
        with without_saved_tensor_hooks(), keep_state([compiled]):
            return _check(case, subject, None if own_compile else compiled, log)
    except Exception as error:  # an error of the check is not one of the user's program
        logger.debug("ctk: the check failed", exc_info=error)
        return CheckedCall(note=f"the check failed: {type(error).__name__}: {first_line(error)}")


def _check(
    case: Case, subject: Subject, compiled: Callable[..., object] | None, log: CompileLog | None
) -> CheckedCall:
    """Compare a compiled graph with eager, or a twin of it: for None, and where it is needed."""
    eager = run_eager(case)
    if eager.run is None:
        said = f"{type(eager.error).__name__}: {first_line(eager.error)}" if eager.error else ""
        return CheckedCall(note=f"the graph itself raises in eager ({said})")
    if compiled is None or _needs_twin(case, subject, eager):
        recorder = Recorder(keep_calls=log is not None)
        log = recorder.log if log is not None else None
        twin = dataclasses.replace(case, config=subject.config)
        outcome = run_compiled(twin, observer=recorder, target=subject.target)
    else:
        with keep_python_state(case.graph):  # the called graph is one opaque function
            outcome = run_graph(call_graph(compiled, len(case.inputs)), case.inputs, case.modes)
    if outcome.error is not None:
        if outcome.phase == "compile":
            said = f"{type(outcome.error).__name__}: {first_line(outcome.error)}"
            return CheckedCall(note=f"a second compile, for the check, raises ({said})")
        return CheckedCall(error_signature(outcome), outcome.error)
    findings = [*check_log(case, log)] if log is not None else []
    wrong = [finding for finding in findings if finding.status == "wrong"]
    mismatches = _find_mismatches(case, eager, outcome)
    if mismatches:
        answer = judge(case) if subject.can_recompile else judge_outcomes(case, eager, outcome)
        trace = make_trace(case, log, findings) if log is not None else None
        return dataclasses.replace(_conclude(answer, mismatches, wrong), trace=trace)
    hidden = tuple(_describe_finding(finding) for finding in wrong)
    return CheckedCall(hidden=hidden, drew_random=eager.drew_random)


def _needs_twin(case: Case, subject: Subject, eager: Outcome) -> bool:
    """Return whether the program's own compiled graph cannot be called or compared."""
    target = subject.target
    draws_otherwise = target.native().keys() - subject.config.keys()
    is_profiled = target.profiles_on_gpu and any(
        isinstance(value, torch.Tensor) and value.is_cuda for value in case.inputs
    )
    is_stateful = bool(held_state(case.graph)) or is_profiled
    return is_stateful or (eager.drew_random and bool(draws_otherwise))


def call_graph(function: Callable[..., object], count: int) -> GraphModule:
    """Return a graph of one node that calls `function` with `count` inputs."""

    def call(*args: object) -> object:  # FX wants a plain function with a name
        return function(*args)

    graph = Graph()
    inputs = tuple(graph.placeholder(f"in{i}") for i in range(count))
    graph.output(graph.call_function(call, inputs))
    return GraphModule({}, graph)


def _find_mismatches(case: Case, eager: Outcome, outcome: Outcome) -> tuple[Mismatch, ...]:
    if runs_identical(eager.values, outcome.values):
        return ()
    return compare_runs(eager.values, outcome.values, run_reference(case, eager).values)


def _conclude(
    judgement: Judgement, found: tuple[Mismatch, ...], wrong: list[Finding]
) -> CheckedCall:
    """Return the result for results that differ, after the judgement on them."""
    if judgement.verdict is Verdict.FLAKY:
        return CheckedCall(note=f"the results differ, but not reliably: {judgement.detail}")
    if judgement.is_excused:
        return CheckedCall(excuse=f"{judgement.verdict.value}: {judgement.detail}")
    details = [f"also {m.name}: {m.detail}" for m in found[1:]] + [
        _describe_finding(f) for f in wrong
    ]
    if judgement.verdict is Verdict.REPRODUCES and judgement.signature is not None:
        return CheckedCall(judgement.signature, details=tuple(details))
    details.append("a second compile of the saved graph does not show it")
    return CheckedCall(mismatch_signature(found[0]), details=tuple(details))


def _describe_finding(finding: Finding) -> str:
    detail = finding.mismatch.detail if finding.mismatch else ""
    return f"{finding.where} changes the value of {finding.node}: {detail}"
