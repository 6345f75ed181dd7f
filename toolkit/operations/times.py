"""Time a compile: seconds and rewrites of each stage and pass, of any target.

The reports of passes and kernels of one observed compile are added up, with the phases that ctk
measures itself (tracing, printing, the C compiler); unreported time (wrappers, a compiler that
announces little) is the rest. The compile is not repeated, because users wait for a first compile;
on noisy machines trust the shares.
"""

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from torch.fx import GraphModule

from ctk.compiler.observe import Observer
from ctk.compiler.phases import Seconds, measured
from ctk.toolkit.case.case import Case
from ctk.toolkit.compile_log.recorder import CompileLog, Recorder
from ctk.toolkit.execution.execute import run_compiled
from ctk.toolkit.targets import resolve_target
from ctk.toolkit.targets.base import Compiled, Target


@dataclass(frozen=True, slots=True)
class StepTime:
    """The time of one pass, of the code generation of a stage, or of another phase.

    Attributes:
        name: The pass, over all its runs in that stage; or the code generator; or the phase.
        seconds: All runs together.
        notes: Remarks of the pass on the nodes that it examined.
    """

    stage: str
    name: str
    runs: int
    rewrites: int
    seconds: float
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Times:
    """Where the time of a compile went.

    Attributes:
        seconds: The compile, from the captured graph to a callable, and the steps that were
            reported later: torch may ask for the backward graph at the first backward pass.
        steps: In the order in which they first ran.
        error: The exception of the compile or the call; empty for none.
    """

    case: str
    target: str
    seconds: float
    steps: tuple[StepTime, ...]
    error: str = ""

    @property
    def rest(self) -> float:
        """Unreported seconds."""
        return max(0.0, self.seconds - sum(step.seconds for step in self.steps))

    @property
    def stages(self) -> tuple[StepTime, ...]:
        """The sums of each stage."""
        return _sums(replace(step, name="", notes=()) for step in self.steps)


class TimedTarget(Target):
    """Measures the compile of another target.

    Attributes:
        events: Events in the log at its end.
        phases: The phases so far, at its end.
    """

    def __init__(self, target: Target, log: CompileLog, phases: Seconds) -> None:
        self.name, self._target, self._log, self._phases = target.name, target, log, phases
        self.seconds, self.events, self.phases = 0.0, 0, Seconds()

    def check_config(self, config: Mapping[str, object]) -> None:
        self._target.check_config(config)

    def compile(
        self,
        gm: GraphModule,
        example_inputs: Sequence[object],
        *,
        config: Mapping[str, object],
        observer: Observer | None,
    ) -> Compiled:
        started = time.perf_counter()
        try:
            return self._target.compile(gm, example_inputs, config=config, observer=observer)
        finally:
            self.seconds, self.events = time.perf_counter() - started, len(self._log.events)
            self.phases = Seconds(self._phases)


def time_case(case: Case) -> Times:
    """Compile a case once under an observer, call it, and return the time of each step."""
    recorder = Recorder()
    with measured() as phases:
        timed = TimedTarget(resolve_target(case.target), recorder.log, phases)
        outcome = run_compiled(case, observer=recorder, target=timed)
    steps = step_times(recorder.log, phases)
    since = {phase: spent - timed.phases.get(phase, 0.0) for phase, spent in phases.items()}
    later = step_times(CompileLog(recorder.log.events[timed.events :]), since)
    error = f"{type(outcome.error).__name__}: {outcome.error}" if outcome.error else ""
    seconds = timed.seconds + sum(step.seconds for step in later)
    return Times(case.name, case.target, seconds, steps, error.partition("\n")[0])


def step_times(log: CompileLog, phases: Seconds) -> tuple[StepTime, ...]:
    """Return the time of each pass and code generator in a log, and of the phases besides them."""
    single = [
        StepTime(
            p.id.stage,
            p.id.name,
            1,
            sum(not rewrite.vetoed for rewrite in p.rewrites),
            p.seconds,
            p.notes,
        )
        for p in log.passes()
        if not p.vetoed and p.seconds
    ]
    wholes = [kernel for kernel in log.kernels() if not kernel.nodes and not kernel.vetoed]
    single += [StepTime("lowered", str(k.id).partition("/")[2], 1, 0, k.seconds) for k in wholes]
    found = {(step.stage, step.name): step for step in _sums(single)}
    found = {key: StepTime(*key, 1, 0, 0.0) for key in phases if key not in found} | found
    timed = {key: replace(found[key], seconds=seconds) for key, seconds in phases.items()}
    return tuple((timed | {k: step for k, step in found.items() if k not in timed}).values())


def _sums(steps: Iterable[StepTime]) -> tuple[StepTime, ...]:
    """Add up the steps of equal stage and name, in the order in which they first ran."""
    sums: dict[tuple[str, str], StepTime] = {}
    for step in steps:
        before = sums.get((step.stage, step.name), StepTime(step.stage, step.name, 0, 0, 0.0))
        sums[step.stage, step.name] = replace(
            before,
            runs=before.runs + step.runs,
            rewrites=before.rewrites + step.rewrites,
            seconds=before.seconds + step.seconds,
            notes=before.notes + step.notes,
        )
    return tuple(sums.values())
