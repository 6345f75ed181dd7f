"""Judge time and memory: is a compiled call slower than eager's, or does it take more memory?

repro_templates/graph/measuring.py measures, here and in repros. Results are not compared; a
candidate whose compile or call raises shows another failure.
"""

import dataclasses
import operator
from collections.abc import Callable, Sequence
from dataclasses import replace

import torch
from torch.fx import Graph, GraphModule, Node

from ctk.compiler.errors import CaseError
from ctk.compiler.observe import Observer
from ctk.repro_templates.graph.measuring import (
    Call,
    Measured,
    extra_memory,
    repeatable,
    slowdown,
    uses_gpu,
)
from ctk.repro_templates.graph.running import STATES
from ctk.repro_templates.graph.verdict import error_line
from ctk.toolkit.case.case import Case
from ctk.toolkit.case.failure import Signature
from ctk.toolkit.case.judgement import Judgement, Verdict
from ctk.toolkit.execution.execute import Outcome, run_compiled, run_eager
from ctk.toolkit.execution.private_copy import held_tensors, private_copy

_VERDICTS = {
    "fails": Verdict.REPRODUCES,
    "passes": Verdict.PASSES,
    "flaky": Verdict.FLAKY,
}


def judge_measured(
    case: Case, expected: Signature, observer: Observer | None
) -> Judgement | Outcome:
    """Measure a case.

    Args:
        expected: The quantity, and the factor from which on it is a failure.
    """
    eager = run_eager(case)
    if eager.error is not None:
        return Judgement(Verdict.INVALID, detail=f"eager raises {error_line(eager.error)}")
    found: list[Measured] = []

    def compare(call: Callable[..., object], inputs: Sequence[object]) -> None:
        found.append(_measure(case, expected, call, inputs))

    try:
        outcome = run_compiled(case, observer=observer, then=compare)
    except CaseError as error:
        return Judgement(Verdict.INVALID, detail=str(error))
    if outcome.run is None:
        return outcome
    seen = replace(expected, message=found[0].detail)
    verdict = _VERDICTS[found[0].answer]
    signature = None if verdict is Verdict.PASSES else seen
    return Judgement(verdict, signature, found[0].detail)


def _measure(
    case: Case, expected: Signature, call: Callable[..., object], inputs: Sequence[object]
) -> Measured:
    assert expected.limit is not None, "a measured failure has a limit"
    program, owned = private_copy(case.graph, case.inputs, lazy=False)
    eager, compiled = _repeatable(case, program, owned), _repeatable(case, call, inputs)
    on_gpu = uses_gpu([*owned, *(tensor for _, tensor in held_tensors(program))])
    if expected.kind == "peak-memory":
        return extra_memory(eager, compiled, expected.limit, on_gpu=on_gpu)
    return slowdown(eager, compiled, expected.limit, lambda: _empty_call(case), on_gpu=on_gpu)


def _repeatable(case: Case, call: Callable[..., object], inputs: Sequence[object]) -> Call:
    return repeatable(call, inputs, dataclasses.asdict(case.modes), STATES)


def _empty_call(case: Case) -> Call | None:
    """Return a call of an almost empty program of the same inputs; None if it does not compile."""
    kept: list[Call] = []
    empty = replace(case, graph=empty_graph(case), roles={})
    run_compiled(empty, then=lambda call, inputs: kept.append(_repeatable(empty, call, inputs)))
    return kept[0] if kept else None


def empty_graph(case: Case) -> GraphModule:
    """Return a graph of the same placeholders that reads one number of a tensor, and adds one.

    It is `Empty` of repro_templates/graph/measuring.py.
    """
    graph = Graph()
    names = [node.name for node in case.graph.graph.nodes if node.op == "placeholder"]
    given = list(zip([graph.placeholder(name) for name in names], case.inputs, strict=True))
    tensors = [(node, value) for node, value in given if isinstance(value, torch.Tensor)]
    learned = [(node, value) for node, value in tensors if value.requires_grad]
    first: Node
    if tensors:
        first, value = (learned or tensors)[0]
        one = graph.call_function(operator.getitem, (first, (slice(0, 1),) * value.dim()))
    else:
        one = graph.call_function(torch.zeros, (1,))
    graph.output((graph.call_function(operator.add, (one, 1)),))
    return GraphModule(torch.nn.Module(), graph)
