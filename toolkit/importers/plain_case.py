"""Cases of graphs that take tensors of classes of their own: the graph of their plain parts.

A case holds plain tensors only. So a graph of `TwoTensor(a, b)`, of a DTensor or a jagged nested
tensor is traced on the parts into ATen operators, as AOTAutograd does:

    l_x_: TwoTensor     l_x_a, l_x_b: Tensor
    sin(l_x_)           aten.sin(l_x_a), aten.sin(l_x_b)

The target then gets the graph that it gets in the program. An error of AOTAutograd in the handling
of the class itself shows only in a comparison of the program's calls.
"""

import dataclasses
from collections.abc import Sequence
from typing import cast

from torch import Tensor
from torch.fx import GraphModule

from ctk.compiler.errors import NoGraphError
from ctk.compiler.fx.clone import clone_inputs
from ctk.compiler.fx.tensor_parts import Parts, parts_of
from ctk.compiler.fx.walk import input_names, placeholders
from ctk.compiler.observe import first_line
from ctk.compiler.torch_compat.fx.graphs import preserve_traces
from ctk.compiler.torch_compat.fx.tracing import trace_forward
from ctk.toolkit.case.case import Case
from ctk.toolkit.execution.modes import apply_modes
from ctk.toolkit.execution.private_copy import Eager, private_copy


def plain_case(case: Case) -> Case:
    """Return a case whose inputs are plain tensors: itself, or that of the graph of their parts.

    Its sizes and numbers are those of the inputs, and the casts of autocast are in its graph.

    Raises:
        NoGraphError: The graph cannot be traced; a case cannot hold it.
    """
    inputs = [parts_of(value) for value in case.inputs]
    if all(each.inner is None for each in inputs):
        return case
    names = input_names(case.graph)
    owners = [
        (owner, _input_name(owner, path), value)
        for owner, each in zip(names, inputs, strict=True)
        for path, value in each.plain()
    ]
    values = tuple(value for _, _, value in owners)
    try:
        graph = _trace(case, inputs, values)
    except Exception as error:
        kinds = sorted({type(each.value).__name__ for each in inputs if each.inner is not None})
        raise NoGraphError(
            f"no case can hold {case.name}: it takes tensors of the class {', '.join(kinds)}, and "
            f"the graph of their parts cannot be traced: {type(error).__name__}: "
            f"{first_line(error)}"
        ) from error
    _rename_inputs(graph, [name for _, name, _ in owners])
    roles = {name: case.roles[owner] for owner, name, _ in owners if owner in case.roles}
    return dataclasses.replace(
        case,
        graph=graph,
        inputs=values,
        dynamic={},
        roles=roles,
        modes=dataclasses.replace(case.modes, autocast=()),
    )


def _trace(case: Case, inputs: list[Parts], values: tuple[Tensor, ...]) -> GraphModule:
    """Trace the graph of a case on copies of the parts of its inputs."""
    private, _ = private_copy(case.graph, ())
    run = Eager(private)

    def on_parts(*parts: Tensor) -> tuple[object, ...]:
        remaining = iter(parts)
        with apply_modes(case.modes), preserve_traces():
            results = run(*(each.rebuild(remaining) for each in inputs))
        flat = results if isinstance(results, tuple | list) else (results,)
        return tuple(
            part for each in cast("tuple[object, ...]", flat) for _, part in parts_of(each).plain()
        )

    return trace_forward(on_parts, clone_inputs(values))


def _input_name(owner: str, path: Sequence[str]) -> str:
    """Return the name of a part of an input: `x_a` of the part `_a` of `x`."""
    return "_".join([owner.rstrip("_"), *(name.strip("_") for name in path)]) if path else owner


def _rename_inputs(graph: GraphModule, names: list[str]) -> None:
    taken = {node.name for node in graph.graph.nodes}
    for node, name in zip(placeholders(graph), names, strict=True):
        while name in taken:
            name += "_"
        taken.add(name)
        node.name = node.target = name
    graph.recompile()
