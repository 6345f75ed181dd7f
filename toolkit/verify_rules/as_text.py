"""A counter-example for people: the graph before and after as Python, the inputs, both results."""

import math
from collections.abc import Sequence

from torch import Tensor
from torch.fx import GraphModule

from ctk.compiler.errors import CtkError
from ctk.compiler.rewriting.user_passes import FunctionPass
from ctk.toolkit.case.graphs.python_source import graph_to_python
from ctk.toolkit.verify_rules.graphs import inputs_of
from ctk.toolkit.verify_rules.running import Play
from ctk.toolkit.verify_rules.subjects import WHOLE
from ctk.toolkit.verify_rules.verify import CounterExample, Finding


def tensor_text(tensor: Tensor) -> str:
    """Return Python that makes a tensor again, strides and overlaps included."""
    flat = tensor.as_strided((_extent(tensor),), (1,))
    dtype, numbers = tensor.dtype, ", ".join(_number(each) for each in flat.tolist())
    made = f"torch.tensor([{numbers}], dtype={dtype})"
    return f"{made}.as_strided({tuple(tensor.shape)}, {tensor.stride()})"


def _extent(tensor: Tensor) -> int:
    if tensor.numel() == 0:
        return 0
    pairs = zip(tensor.shape, tensor.stride(), strict=True)
    return 1 + sum((size - 1) * step for size, step in pairs)


def _number(value: object) -> str:
    if isinstance(value, complex):
        return f"complex({_number(value.real)}, {_number(value.imag)})"
    is_literal = not isinstance(value, float) or math.isfinite(value)
    return repr(value) if is_literal else f'float("{value}")'


def inputs_text(counter: CounterExample) -> str:
    """Return the inputs as a Python list."""
    tensors = inputs_of(counter.draw)
    lines = "".join(f"    {tensor_text(each)},\n" for each in tensors)
    return f"inputs = [\n{lines}]\n"


def graph_text(graph: GraphModule | None, name: str) -> str:
    """Return a graph as the source of a module class; as nodes where it cannot be written."""
    if graph is None:
        return f"# {name}: the rule raised"
    try:
        return graph_to_python(graph, name).strip().removeprefix("import torch").strip()
    except CtkError:
        return "\n".join(f"# {line}" for line in str(graph.graph).strip().splitlines())


def results_text(plays: Sequence[Play]) -> list[str]:
    """Return what each run gave, one line each."""
    lines: list[str] = []
    for when, each in zip(("before", "after"), plays, strict=False):
        shown = each.error if each.error is not None else [_shown(out) for out in each.outputs]
        lines.append(f"{when}: {shown}")
    return lines


def _shown(value: object) -> object:
    return value.tolist() if isinstance(value, Tensor) else value


def _declaration(finding: Finding) -> list[str]:
    """Return how a plain function says that it rounds otherwise, where only values differ."""
    step, counter = finding.subject.step, finding.counter
    found = counter.trial.difference if counter is not None else None
    is_plain = isinstance(step, FunctionPass) and not hasattr(step.function, "numerics")
    if not is_plain or finding.subject.name != WHOLE or found is None or found.kind != "value":
        return []
    return [
        f'# bits are compared; if it may round otherwise: {step.name}.numerics = "reassociates"'
    ]


def counter_text(finding: Finding) -> str:
    """Return a refuted rule with its counter-example."""
    counter = finding.counter
    assert counter is not None
    subject, trial = finding.subject, counter.trial
    parts = [
        f"# {subject.pass_name}: {subject.name} is refuted: {counter.said}",
        graph_text(trial.before, "Before"),
        graph_text(trial.after, "After"),
        inputs_text(counter).strip(),
        *(f"# {line}" for line in results_text(trial.plays)),
        *_declaration(finding),
    ]
    return "\n\n".join(parts)
