"""Reduce one problem with ctk and with torch's minifier, and count.

Questions, what is left, and for ctk time and memory of its own, beside the oracle's.
"""

import contextlib
import dataclasses
import functools
import io
import math
import resource
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from functorch.compile import minifier
from torch.fx import GraphModule

from ctk.compiler.fx.walk import attribute_targets, fetch
from ctk.toolkit.case.case import Case
from ctk.toolkit.case.failure import Signature
from ctk.toolkit.case.judgement import Judgement, Verdict
from ctk.toolkit.reduce.driver import minimize
from ctk.toolkit.reduce.problem import Problem
from ctk.toolkit.reduce.size import call_nodes
from tests.helpers.reduce_families import FAMILIES, Planted
from tests.helpers.reduce_families.predicates import run

RUN_UP_TO = 2_000
"""Graphs of more nodes are not run by the oracle: what is measured there is the reducer."""


@dataclass(frozen=True, slots=True)
class Theirs:
    """What torch's minifier did with the same problem.

    Attributes:
        ended: `finished`, `time` (the limit; `left` is the best until then), or `raised`.
        detail: What it raised.
    """

    questions: int
    left: int
    ended: str
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Row:
    """What was measured of one problem.

    Attributes:
        nodes: Call nodes given.
        left: Call nodes left, sub-graphs included.
        elements: Of all inputs and constants.
        non_zeros: Of these elements, how many are not zero.
        invalid: Questions about graphs that do not run.
        milliseconds: Of the reducer's own, for each question.
        megabytes: The most memory that the process had on top of the given case.
        torch: Its version.
    """

    family: str
    size: int
    seed: int
    nodes: int
    questions: int
    goal: int
    left: int
    best_left: int
    elements: int
    best_elements: int | None
    non_zeros: int
    best_non_zeros: int | None
    invalid: int
    milliseconds: float
    seconds: float
    megabytes: float
    reason: str
    ops: tuple[str, ...]
    torch: str
    theirs: Theirs | None = None

    def as_json(self) -> dict[str, object]:
        """Return the fields by name."""
        return dataclasses.asdict(self)

    @classmethod
    def from_json(cls, fields: dict[str, Any]) -> "Row":
        """Return the row that `as_json` has described."""
        theirs = fields["theirs"]
        plain = fields | {"ops": tuple(fields["ops"])}
        return cls(**plain | {"theirs": Theirs(**theirs) if theirs else None})


class OutOfTime(BaseException):
    """A reducer's time is used up; it must not catch this as a failure of the graph."""


class TimedOracle:
    """An oracle over a predicate that notes how long it took; what does not run is invalid.

    Attributes:
        questions: How often it was asked.
        invalid: About how many graphs that do not run.
        seconds: How long all answers took.
    """

    def __init__(self, planted: Planted, limit: float = math.inf) -> None:
        """Make an oracle that raises `OutOfTime` after so many seconds of the CPU."""
        self.until = time.process_time() + limit
        self.fails = planted.fails
        self.runs = len(planted.graph.graph.nodes) <= RUN_UP_TO
        self.questions = self.invalid = 0
        self.seconds = 0.0

    def __call__(self, case: Case) -> Judgement:
        if time.process_time() > self.until:
            raise OutOfTime
        started = time.perf_counter()
        judgement = self._judged(case)
        self.questions += 1
        self.invalid += judgement.verdict is Verdict.INVALID
        self.seconds += time.perf_counter() - started
        return judgement

    def _judged(self, case: Case) -> Judgement:
        try:
            if self.runs:
                run(case.graph, case.inputs)
            is_failing = self.fails(case.graph, case.inputs)
        except Exception as error:
            return Judgement(Verdict.INVALID, detail=f"{type(error).__name__}: {error}")
        if is_failing:
            return Judgement(Verdict.REPRODUCES, Signature("accuracy", output="out0"))
        return Judgement(Verdict.PASSES)


def case_of(planted: Planted) -> Case:
    """Return the case that a reducer starts from."""
    modes = dataclasses.replace(Case(planted.graph, planted.inputs).modes, grad=False)
    return Case(planted.graph, planted.inputs, target="fake", modes=modes)


def measured(family: str, size: int, seed: int, torch_seconds: float = 0) -> Row:
    """Reduce one problem, with torch's minifier too if that gets some time."""
    warm_up()
    planted = FAMILIES[family].build(size, seed)
    case, oracle = case_of(planted), TimedOracle(planted)
    before, started = _megabytes(), time.perf_counter()
    found = minimize(Problem(case, oracle))
    seconds = time.perf_counter() - started
    return Row(
        family=family,
        size=size,
        seed=seed,
        nodes=call_nodes(case),
        questions=oracle.questions,
        goal=planted.questions,
        left=found.nodes_after,
        best_left=planted.optimum.nodes,
        elements=sum(t.numel() for t in tensors(found.best)),
        best_elements=planted.optimum.elements,
        non_zeros=sum(int(t.count_nonzero()) for t in tensors(found.best)),
        best_non_zeros=planted.optimum.non_zeros,
        invalid=oracle.invalid,
        milliseconds=1000 * (seconds - oracle.seconds) / oracle.questions,
        seconds=seconds,
        megabytes=_megabytes() - before,
        reason=found.reason,
        ops=tuple(str(n.target) for n in found.graph.graph.nodes if n.op.startswith("call")),
        torch=torch.__version__,
        theirs=with_torch(planted, torch_seconds) if torch_seconds else None,
    )


@functools.cache
def warm_up() -> None:
    """Reduce something small once in a process: what is imported on the way is no one's time."""
    planted = FAMILIES["feeding_dag"].build(20, 0)
    minimize(Problem(case_of(planted), TimedOracle(planted)))


def with_torch(planted: Planted, limit: float) -> Theirs:
    """Reduce with torch's minifier; `limit` in seconds of the CPU."""
    case, oracle = case_of(planted), TimedOracle(planted, limit)
    left = call_nodes(case)

    def fails(gm: GraphModule, inputs: Sequence[object]) -> bool:
        nonlocal left
        changed = dataclasses.replace(case, graph=gm, inputs=tuple(inputs))
        is_failing = oracle(changed).verdict is Verdict.REPRODUCES
        left = min(left, call_nodes(changed)) if is_failing else left
        return is_failing

    ended, detail = "finished", ""
    with contextlib.redirect_stderr(io.StringIO()), contextlib.redirect_stdout(io.StringIO()):
        try:
            graph, _ = minifier(case.graph, list(case.inputs), fails, _ignore)
            left = call_nodes(dataclasses.replace(case, graph=graph))
        except OutOfTime:
            ended = "time"
        except Exception as error:
            ended, detail = "raised", f"{type(error).__name__}: {error}"[:200]
    return Theirs(oracle.questions, left, ended, detail)


def _ignore(gm: GraphModule, inputs: Sequence[object]) -> None:
    """Do not write the files that torch's minifier writes at each improvement."""


def tensors(case: Case) -> list[torch.Tensor]:
    """Return the tensors that a case is given, and those that its graph holds."""
    held = (fetch(case.graph, target) for target in attribute_targets(case.graph.graph))
    return [v for v in (*case.inputs, *held) if isinstance(v, torch.Tensor)]


def _megabytes() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
