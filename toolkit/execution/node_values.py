"""Run a graph and keep every value, for pass-by-pass checks."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence

import torch
from torch import Tensor
from torch.fx import GraphModule, Node

from ctk.compiler.fx.clone import clone_value
from ctk.compiler.fx.tensor_parts import PLAIN_CLASSES
from ctk.compiler.torch_compat.process.process_state import is_dual, is_in_vmap
from ctk.toolkit.case.case import Modes
from ctk.toolkit.execution.execute import Outcome, run_private, run_upcast
from ctk.toolkit.execution.modes import current_modes
from ctk.toolkit.execution.private_copy import Eager, UpcastEager

NOTHING: Mapping[str, Callable[[object], None]] = {}
Scalars = bool | int | float | complex | str


def graph_values(
    gm: GraphModule,
    inputs: Sequence[object],
    *,
    dtype: torch.dtype | None = None,
    modes: Modes | None = None,
    values: dict[str, object] | None = None,
    changed: Mapping[str, Callable[[object], None]] = NOTHING,
) -> dict[str, object]:
    """Run a graph once and return every value.

    1. `NAME`: the tensor or scalar of node NAME, cloned right after the node ran: a later in-place
       op does not change it.
    2. `output.N`: leaf N of the output, read when the graph ended.
    3. `input.N`: tensor input N after the run.

    Values inside sub-graphs (branches of `torch.cond`) are not kept.

    Args:
        gm: Only read. Symbolic sizes are placeholders that get ints.
        inputs: Real values, one per placeholder; only read.
        dtype: `torch.float64` upcasts the whole program (`upcast_graph`), with the same random
            numbers. None: as it is.
        modes: State and seed of the run. None: the current state and the last seed of torch.
        changed: By node, a function applied to its value before it is read. Not in float64.

    Raises:
        PrecisionRefused: `dtype` is given, and a node has no float64 form; the message names it.
        Exception: An exception of an operator in its own dtype.
    """
    modes = dataclasses.replace(modes or current_modes(seed=torch.initial_seed()), backward=False)
    values = {} if values is None else values
    if dtype is None:
        outcome = run_private(
            gm, inputs, modes, runner=_make_keeping_runner(Eager, values, changed)
        )
        return values | _final_values(outcome)
    keeping = _make_keeping_runner(UpcastEager, values)
    outcome = run_upcast(gm, inputs, modes, is_random=False, runner=keeping)
    if outcome.drew_random:
        outcome = run_upcast(gm, inputs, modes, is_random=True, runner=keeping)
    return values | _final_values(outcome)


def values_and_error(
    gm: GraphModule, inputs: Sequence[object]
) -> tuple[dict[str, object], Exception | None]:
    """Return `graph_values`, and the exception of the graph: then the values up to that node."""
    values: dict[str, object] = {}
    try:
        return graph_values(gm, inputs, values=values), None
    except Exception as error:
        return values, error


def _make_keeping_runner(
    runner: type[Eager],
    values: dict[str, object],
    changed: Mapping[str, Callable[[object], None]] = NOTHING,
) -> type[Eager]:
    class Keeping(runner):
        def run_node(self, n: Node) -> object:
            value = super().run_node(n)
            if n.name in changed:
                changed[n.name](value)
            if n.op != "output" and _has_numbers(value):
                values[n.name] = clone_value(value)
            return value

    return Keeping


def _has_numbers(value: object) -> bool:
    """Return whether a value can be compared.

    Cases that cannot: 1. a weight packed by oneDNN or MKL; 2. a value inside `vmap`, which is a
    batch; 3. a dual tensor: operations on its tangent have the same origin; 4. a tensor subclass,
    which AOTAutograd takes apart: behind it, its node's value is one of its parts.
    """
    if isinstance(value, Tensor):
        if type(value) not in PLAIN_CLASSES or value.is_mkldnn:
            return False
        return not is_in_vmap(value) and not is_dual(value)
    return value is None or isinstance(value, Scalars)


def _final_values(outcome: Outcome) -> dict[str, object]:
    named = {"out": "output.", "in": "input."}
    return {
        f"{prefix}{name.removeprefix(short)}": value
        for name, value in outcome.values.items()
        for short, prefix in named.items()
        if name.startswith(short)
    }
