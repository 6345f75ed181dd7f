"""Judge the time of a compile: is it above a limit, and does it grow faster than its graph?

An honest compile of a large graph takes long as well, but its halves take about half as long each.
So a compile above the limit is cut in two, and each half is compiled, with eager's values as its
inputs. The whole is compared with both together, less one almost empty program, which they have
twice:

    20 calls 23.1 s    halves 0.1 s, 0.2 s     grows faster than its graph: slow-compile
    3000 calls 40 s    halves 19 s, 20 s       in proportion: passes
    90 calls 12 s      halves 0.2 s, 11.7 s    the slow half is cut in two again, and so on; one
                                               call or two with all of the time: slow-compile

The place is the pass or kernel whose seconds grow most from the halves to the whole. If none has
half of the growth, it is the function in which samples of the stack find the time.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace

from torch.fx import Node

from ctk.compiler.errors import CaseError
from ctk.compiler.fx.extract import extract
from ctk.compiler.fx.walk import CALLS, output_leaves
from ctk.compiler.observe import Observer
from ctk.repro_templates.graph.compile_time import compile_seconds, is_slow_compile
from ctk.repro_templates.graph.measuring import Call, repeatable
from ctk.repro_templates.graph.running import STATES
from ctk.repro_templates.graph.verdict import error_line
from ctk.toolkit.case.case import Case
from ctk.toolkit.case.failure import Signature
from ctk.toolkit.case.judgement import Judgement, Verdict
from ctk.toolkit.compile_log.recorder import CompileLog, Recorder, Veto
from ctk.toolkit.execution.execute import Outcome, run_compiled, run_eager
from ctk.toolkit.execution.node_values import graph_values
from ctk.toolkit.execution.stack_samples import StackSamples, sample_stack
from ctk.toolkit.oracle.questions.performance import empty_graph
from ctk.toolkit.processes.link import report_alive

GROWTH = 1.5
"""Least time of the whole, in those of its halves together, that grows faster than the graph."""

HEAVY = 0.75
"""Share of the time from which on a half has it all."""

FEW = 2
"""Calls of a graph that is not cut any more."""

STEEP = 1.2
"""Least factor of the time with one more call that is reported."""

STEADY = 40
"""Most calls of a graph whose growth with each single call is measured."""

_LEAST = 0.001
"""Seconds below which a time cannot be measured."""


@dataclass(frozen=True, slots=True)
class Timed:
    """One timed compile.

    Attributes:
        error: Outcome of a compile or call that raised; None if it did not.
    """

    seconds: float
    log: CompileLog
    samples: StackSamples
    error: Outcome | None = None


@dataclass(frozen=True, slots=True)
class Growth:
    """How the time of a compile grows with its graph.

    Attributes:
        words: The figures.
        where: Pass, kernel or function that grows; "" if unknown.
    """

    is_steep: bool
    words: str
    where: str = ""


@dataclass(slots=True)
class Stopwatch:
    """Times compiles of a case and of its parts, with the same things left out."""

    veto: Veto
    empty: float = math.inf

    def time(self, case: Case) -> Timed:
        """Compile a case without caches, and call it twice."""
        recorder, outcomes = Recorder(self.veto), list[Outcome]()

        def compile_and_call() -> Call:
            further: list[Call] = []

            def keep(call: Callable[..., object], inputs: Sequence[object]) -> None:
                further.append(repeatable(call, inputs, asdict(case.modes), STATES))

            outcomes.append(run_compiled(case, observer=recorder, then=keep))
            return further[0] if further else lambda: None

        with sample_stack() as samples:
            seconds = compile_seconds(compile_and_call)
        report_alive()
        error = outcomes[0] if outcomes[0].run is None else None
        return Timed(seconds, recorder.log, samples, error)

    def time_empty(self, case: Case) -> None:
        """Time an almost empty program of the same inputs once more; the least time counts."""
        empty = replace(case, graph=empty_graph(case), roles={})
        self.empty = min(self.empty, self.time(empty).seconds)

    def own(self, timed: Timed) -> float:
        """Return the seconds less those of an almost empty program."""
        return max(_LEAST, timed.seconds - self.empty)


def judge_compile_time(
    case: Case, expected: Signature, observer: Observer | None
) -> Judgement | Outcome:
    """Time the compile of a case, and judge its growth where it is above the limit.

    Args:
        expected: Its `limit` is in seconds.
        observer: Gets the events of the timed compile after it, so as to cost no time.
    """
    assert expected.limit is not None, "a measured failure has a limit"
    eager = run_eager(case)
    if eager.error is not None:
        return Judgement(Verdict.INVALID, detail=f"eager raises {error_line(eager.error)}")
    watch = Stopwatch(observer.veto if isinstance(observer, Recorder) else Veto())
    try:
        for _ in range(2):  # the first one imports
            watch.time_empty(case)
        whole = watch.time(case)
        if is_slow_compile(whole.seconds, watch.empty, expected.limit):
            again = watch.time(case)  # other load only adds to a time
            whole = min(whole, again, key=lambda timed: timed.seconds)
    except CaseError as error:
        return Judgement(Verdict.INVALID, detail=str(error))
    if isinstance(observer, Recorder):
        observer.log.events.extend(whole.log.events)
    if whole.error is not None:
        return whole.error
    figures = f"{whole.seconds:.2f} s for {_count(case)}"
    if not is_slow_compile(whole.seconds, watch.empty, expected.limit):
        base = f"{watch.empty:.2f} s for an almost empty program"
        return Judgement(Verdict.PASSES, detail=f"the compile takes {figures}, {base}")
    growth = measure_growth(case, whole, watch, is_known=bool(expected.message))
    if growth is None:
        unknown = "its halves do not compile alone, so its growth is unknown"
        return Judgement(Verdict.INVALID, detail=f"the compile takes {figures}; {unknown}")
    detail = f"{figures}; {growth.words}"
    if not growth.is_steep:
        return Judgement(Verdict.PASSES, detail=f"the compile takes {detail}")
    seen = replace(expected, where=growth.where or None, message=detail)
    return Judgement(Verdict.REPRODUCES, seen, detail)


def measure_growth(
    case: Case, whole: Timed, watch: Stopwatch, *, is_known: bool = False
) -> Growth | None:
    """Compare the time of a compile with those of its halves; None if they do not compile.

    Args:
        is_known: Whether the figures are known already, so that no further ones are measured.
    """
    part, timed = case, whole
    while True:
        names = _calls(part)
        if len(names) <= FEW:
            listed = ", ".join(names)
            return Growth(True, f"{listed} alone: {timed.seconds:.2f} s", _growing(timed, ()))
        middle = len(names) // 2
        parts = [part_of(part, names[:middle]), part_of(part, names[middle:])]
        if parts[0] is None or parts[1] is None:
            return None
        halves = [watch.time(half) for half in parts if half is not None]
        if any(half.error is not None for half in halves):
            return None
        figures = " and ".join(f"{half.seconds:.2f} s" for half in halves)
        words = (
            f"its halves take {figures}" if part is case else f"halves of {_count(part)}: {figures}"
        )
        watch.time_empty(case)
        own, both = watch.own(timed), sum(half.seconds for half in halves) - watch.empty
        if timed.seconds >= GROWTH * both:
            more = "" if is_known else _steadily(part, timed, names, watch)
            return Growth(True, f"{words}{more}", _growing(timed, halves))
        heavier = max(range(2), key=lambda number: halves[number].seconds)
        if watch.own(halves[heavier]) < HEAVY * own:
            return Growth(False, f"{words}: in proportion to its size")
        half = parts[heavier]
        assert half is not None
        part, timed = half, halves[heavier]


def _steadily(part: Case, timed: Timed, names: Sequence[str], watch: Stopwatch) -> str:
    """Return the growth with each of the last calls in words; "" if it is not the same for each."""
    if len(names) > STEADY:
        return ""
    shorter = [part_of(part, names[:-cut]) for cut in (1, 2)]
    times = [timed, *(watch.time(each) for each in shorter if each is not None)]
    if len(times) < 3 or any(each.error is not None for each in times):
        return ""
    figures = ", ".join(
        f"{each.seconds:.2f} s for {len(names) - cut}" for cut, each in enumerate(times)
    )
    own = [watch.own(each) for each in times]
    factors = own[0] / own[1], own[1] / own[2]
    if min(factors) < STEEP or max(factors) > 2 * min(factors):
        return f"; {figures} calls"
    factor = (factors[0] * factors[1]) ** 0.5
    return f"; {figures} calls: {factor:.1f} times as long with each call"


def _growing(timed: Timed, halves: Sequence[Timed]) -> str:
    """Return the pass, kernel or function that grows most from the halves to the whole."""
    before = [step_seconds(half.log) for half in halves]
    grown = {
        name: seconds - sum(half.get(name, 0.0) for half in before)
        for name, seconds in step_seconds(timed.log).items()
    }
    most = max((half.seconds for half in halves), default=0.0)
    steepest = max(grown, key=lambda name: grown[name], default="")
    if steepest and grown[steepest] >= 0.5 * (timed.seconds - most):
        return steepest
    return timed.samples.hot_function()


def step_seconds(log: CompileLog) -> dict[str, float]:
    """Return the seconds of each pass, all its runs together, and of each kernel."""
    steps = [(f"{each.id.stage}/{each.id.name}", each.seconds) for each in log.passes()]
    steps += [(str(kernel.id), kernel.seconds) for kernel in log.kernels()]
    seconds: dict[str, float] = {}
    for name, each in steps:
        seconds[name] = seconds.get(name, 0.0) + each
    return seconds


def part_of(case: Case, names: Sequence[str]) -> Case | None:
    """Return the case of some calls of a graph alone, on eager's values; None if one is missing.

    The values that others read, and the results of the program among them, are the results.
    """
    inside = frozenset(names)
    leaves = {leaf.name for leaf in output_leaves(case.graph) if isinstance(leaf, Node)}
    wanted = leaves & inside
    part = extract(case.graph, names, wanted or names[-1:])
    nodes = case.graph.graph.find_nodes(op="placeholder")
    values: dict[str, object] = dict(zip((n.name for n in nodes), case.inputs, strict=True))
    if not values.keys() >= {*part.operands}:
        values = graph_values(case.graph, case.inputs, modes=case.modes) | values
    if not values.keys() >= {*part.operands}:
        return None
    return replace(
        case,
        graph=part.module,
        inputs=tuple(values[name] for name in part.operands),
        dynamic={name: sizes for name, sizes in case.dynamic.items() if name in part.operands},
        roles={},
        synthetic=(),
        signature=None,
    )


def _calls(case: Case) -> list[str]:
    return [node.name for node in case.graph.graph.nodes if node.op in CALLS]


def _count(case: Case) -> str:
    number = len(_calls(case))
    return f"{number} call node{'s' * (number != 1)}"
