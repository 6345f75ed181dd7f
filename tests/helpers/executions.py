"""Small graphs, cases and a fake target for the tests of `ctk.toolkit.execution.execute`."""

from collections.abc import Callable

import torch
from torch import fx

from ctk.toolkit.case.case import Case

UseTarget = Callable[[Callable[..., object]], None]


def trace(function: Callable[..., object]) -> fx.GraphModule:
    """Return the graph that FX traces of a function."""
    return fx.symbolic_trace(function)


def values(outcome) -> dict[str, object]:
    """Return the results of a run by name; the run must have succeeded."""
    assert outcome.run is not None, outcome.error
    return dict(outcome.values)


def inplace_case() -> Case:
    """Return a case that writes into an input and a buffer."""
    gm = trace(lambda x, y: (x.add_(1), y * 2))
    gm.register_buffer("count", torch.zeros(3))
    output = gm.graph.output_node()
    with gm.graph.inserting_before(output):
        count = gm.graph.get_attr("count")
        gm.graph.call_method("add_", (count, 1))
    gm.recompile()
    return Case(gm, (torch.zeros(3), torch.ones(3)), target="fake")


def captured(program: Callable[..., object], *inputs: object) -> fx.GraphModule:
    """Return the graph that Dynamo captures of a program."""
    graphs = []
    torch._dynamo.reset()
    torch.compile(program, backend=lambda gm, _: graphs.append(gm) or gm.forward, dynamic=False)(
        *inputs
    )
    return graphs[0]


def cond_graph() -> tuple[fx.GraphModule, tuple[torch.Tensor, torch.Tensor]]:
    """Return a captured program with two branches, and inputs that take the first."""

    def program(x, y):
        return torch.cond(x.sum() > 0, lambda x, y: x @ y, lambda x, y: x - y, (x, y))

    inputs = torch.ones(3, 3), torch.eye(3) * 2
    return captured(program, *inputs), inputs
