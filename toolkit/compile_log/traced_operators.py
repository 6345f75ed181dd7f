"""Find custom operators that give other results when a compiler traces them than in eager.

AOTAutograd traces the autograd formula of an operator, and an implementation that is composed of
other operators, on fake tensors. Python code that distinguishes a trace from a call gives other
numbers in each compiler, and functionalization looks guilty.

Each operator of the program is asked about alone, with its operands of an eager run: a graph of one
call runs in eager and with the target `aot_eager`, twice each. It is at fault if both eager runs
agree, and both traces differ from them.
"""

import contextlib
from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from operator import getitem
from typing import Any, cast

from torch import Tensor
from torch.fx import Graph, GraphModule, Node
from torch.overrides import TorchFunctionMode

from ctk.compiler.errors import CaseError
from ctk.compiler.fx.clone import clone_value
from ctk.compiler.observe import first_line
from ctk.compiler.torch_compat.fx import graphs
from ctk.repro_templates.numbers.compare import compare_runs
from ctk.toolkit.case.case import Case, Modes
from ctk.toolkit.execution.execute import Outcome, run_compiled, run_eager, run_private
from ctk.toolkit.execution.kept_operators import calls_in, overload_of

_TRACER = "aot_eager"
_CALLS = 4
"""How many calls of an operator are traced alone."""


def find_trace_faults(case: Case) -> Iterator[tuple[Any, str]]:
    """Yield each custom operator with other results in a trace, and how it differs."""
    if not any(overload_of(node.target) for _, node in calls_in(case.graph)):
        return
    calls = _Calls()
    with contextlib.suppress(Exception):  # of the program: the calls before it were recorded
        run_private(case.graph, case.inputs, case.modes, around=calls.watch())
    for operator, made in calls.found.items():
        alone = (_describe_trace(call.as_case(operator, case.modes)) for call in made)
        fault = next(filter(None, alone), "")
        if fault:
            yield operator, fault


@dataclass(frozen=True, slots=True)
class _Call:
    """One call of an operator: its arguments, with clones of their tensors, and its result."""

    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    result: Any

    def as_case(self, operator: Any, modes: Modes) -> Case:
        """Return a graph of this call alone, whose inputs are its tensors."""
        graph, inputs = Graph(), list[Tensor]()

        def place(value: Any) -> Any:
            if not isinstance(value, Tensor):
                return value
            inputs.append(value)
            return graph.placeholder(f"x{len(inputs)}")

        args, kwargs = graphs.tree_map(place, (self.args, dict(self.kwargs)))
        node = graph.call_function(operator, args, kwargs)
        graph.output(tuple(_leaves(graph, node, self.result)))
        return Case(GraphModule({}, graph), tuple(inputs), target=_TRACER, modes=modes)


@dataclass(slots=True)
class _Calls:
    """The first calls of each custom operator of a run, by operator."""

    found: dict[Any, list[_Call]] = field(default_factory=dict[Any, list[_Call]])

    @contextlib.contextmanager
    def watch(self) -> Generator[None]:
        """Record the calls of a run, also of composite operators."""
        calls = self

        class Watch(TorchFunctionMode):
            def __torch_function__(
                self, func: Any, types: Any, args: Any = (), kwargs: Any = None
            ) -> Any:
                return calls.record(func, args, kwargs or {})

        with Watch():
            yield

    def record(self, function: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        """Call a function, and keep the call of a custom operator if it is one of the first."""
        operator = overload_of(function)
        calls = self.found.setdefault(operator, []) if operator is not None else []
        if operator is None or len(calls) >= _CALLS:
            return function(*args, **kwargs)
        before, named = graphs.tree_map(_clone, (args, dict(kwargs)))
        result = function(*args, **kwargs)
        calls.append(_Call(before, named, result))
        return result


def _leaves(graph: Graph, node: Node, result: Any) -> Iterator[Node]:
    """Yield the nodes of the single values of a result."""
    if not isinstance(result, (list, tuple)):
        yield node
        return
    for index, each in enumerate(cast("Sequence[Any]", result)):
        yield from _leaves(graph, graph.call_function(getitem, (node, index)), each)


def _clone(value: object) -> object:
    if not isinstance(value, Tensor):
        return value
    clone = clone_value(value)
    assert isinstance(clone, Tensor)
    return clone.requires_grad_(value.requires_grad)


def _describe_trace(case: Case) -> str:
    """Return how two traces of a call differ from eager; empty if one does not."""
    eager, again = run_eager(case), run_eager(case)
    if eager.run is None or again.run is None or compare_runs(eager.values, again.values):
        return ""
    try:
        first, second = (_describe_difference(eager, run_compiled(case)) for _ in range(2))
    except CaseError:  # Dynamo runs it in eager
        return ""
    return first if first == second else ""


def _describe_difference(eager: Outcome, traced: Outcome) -> str:
    if traced.error is not None:
        told = f"{type(traced.error).__name__}: {first_line(traced.error)}"
        return f"raises when it is traced: {told}"
    wrong = compare_runs(eager.values, traced.values)
    if not wrong:
        return ""
    is_gradient = all(mismatch.name.startswith("grad_") for mismatch in wrong)
    part = "autograd formula" if is_gradient else "implementation"
    return f"has an {part} that gives other values when it is traced: {wrong[0].detail}"
