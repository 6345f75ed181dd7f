"""Keep custom operators whole in a compile: the counterfactual of a fault that a trace shows.

A compiler traces the autograd formula of an operator, and an implementation that is composed of
other operators, on fake tensors. Python code that distinguishes the two gives other numbers:

    def backward(ctx, grad):  return grad * (2 if torch.compiler.is_compiling() else 3) * ...

Kept whole, the operator runs as in eager, with autograd, when the compiled program is called
(whole_operators.py). A difference that is then gone was due to the operator.
"""

from collections.abc import Collection, Generator, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from torch.fx import GraphModule, Node

from ctk.compiler.fx.copy import copy_graph_module
from ctk.compiler.torch_compat.fx.custom_kernels import is_custom, operator_name
from ctk.compiler.torch_compat.fx.whole_operators import can_keep_whole, whole_operators
from ctk.toolkit.case.case import Case

_TRACE = "operator/trace."


def trace_id(operator: Any) -> str:
    """Return the id of the trace of an operator: `operator/trace.mylib::cube`."""
    return f"{_TRACE}{operator_name(operator)}"


@contextmanager
def keep_whole(case: Case, refused: Collection[str]) -> Generator[Case]:
    """Yield a case in which operators are kept whole.

    Args:
        refused: The ids of their traces (`trace_id`); other texts are ignored.
    """
    if not any(each.startswith(_TRACE) for each in refused):
        yield case
        return
    graph = copy_graph_module(case.graph)
    with whole_operators() as whole:
        for module, node in list(calls_in(graph)):
            operator = overload_of(node.target)
            if operator is not None and trace_id(operator) in refused:
                node.target = whole.function_of(operator)
                module.recompile()
        yield replace(case, graph=graph)


def calls_in(graph: GraphModule) -> Iterator[tuple[GraphModule, Node]]:
    """Yield the nodes of a graph and its sub-graphs that call a function."""
    modules = (each for each in graph.modules() if isinstance(each, GraphModule))
    yield from ((m, node) for m in modules for node in m.graph.nodes if node.op == "call_function")


def overload_of(target: object) -> Any:
    """Return the custom operator that a node calls, if it can be kept whole; else None."""
    operator: Any = getattr(target, "default", target)
    return operator if is_custom(operator) and can_keep_whole(operator) else None
