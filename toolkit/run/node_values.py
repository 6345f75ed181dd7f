"""Run a graph and keep every value: the material of pass-by-pass checks.

What it does not do: it does not compare, and keeps no tuples of tensors: their elements are the
values of `getitem` nodes.
"""

import dataclasses
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext

import torch
from torch import Tensor
from torch.fx import GraphModule, Node

from ctk.compiler.torch_compat import tree_leaves
from ctk.toolkit.case.case import Modes
from ctk.toolkit.run.clone import snapshot
from ctk.toolkit.run.modes import applied, current_modes, generator_state
from ctk.toolkit.run.private_copy import Eager, Promoted, prepare
from ctk.toolkit.run.random_draws import Tape, recording, replaying

Scalars = bool | int | float | complex | str


def graph_values(
    gm: GraphModule,
    inputs: Sequence[object],
    *,
    dtype: torch.dtype | None = None,
    modes: Modes | None = None,
) -> dict[str, object]:
    """Run a graph once and return every value.

    1. `NAME`: a clone of the tensor, or the scalar, that node NAME gave, taken right after it ran:
       a later in-place op does not change it.
    2. `output.N`: leaf N of the output, read when the graph ended.
    3. `input.N`: tensor input N after the run.

    Sub-graphs (branches of `torch.cond`) are run as their op runs them; values inside have no name
    out here.

    Args:
        gm: Only read. Symbolic sizes are placeholders that get ints.
        inputs: Real values, one per placeholder; only read.
        dtype: `torch.float64` promotes the whole program (promote.py), with the same random
            numbers. None: as it is.
        modes: State and seed to run under. None: what holds around the call, and the seed that
            torch's generator was given last.

    Raises:
        PrecisionRefused: `dtype` is given, and a node has no float64 form; the message names it.
        Exception: Whatever an op of the graph raises in its own dtype.
    """
    modes = modes or current_modes(seed=torch.initial_seed())
    if dtype is None:
        return _values(Eager, gm, inputs, modes)[0]
    modes64 = dataclasses.replace(modes, autocast=(), default_dtype="float64")
    values, drew_random = _values(Promoted, gm, inputs, modes64, dtype=dtype)
    if not drew_random:
        return values
    tape: Tape = []
    _values(Eager, gm, inputs, modes, around=recording(tape))
    return _values(Promoted, gm, inputs, modes64, dtype=dtype, around=replaying(tape))[0]


def _values(
    runner: type[Eager],
    gm: GraphModule,
    inputs: Sequence[object],
    modes: Modes,
    *,
    dtype: torch.dtype | None = None,
    around: AbstractContextManager[None] | None = None,
) -> tuple[dict[str, object], bool]:
    """Return the values of one run, and whether it drew random numbers."""
    values: dict[str, object] = {}

    class Keeping(runner):
        def run_node(self, n: Node) -> object:
            value = super().run_node(n)
            if n.op != "output" and (value is None or isinstance(value, Tensor | Scalars)):
                values[n.name] = snapshot(value)
            return value

    private, owned = prepare(gm, inputs, dtype=dtype)
    with applied(modes):
        before = generator_state()
        with around or nullcontext():
            leaves = tree_leaves(Keeping(private)(*owned))
        drew = any(not torch.equal(a, b) for a, b in zip(before, generator_state(), strict=True))
    values |= {f"output.{i}": snapshot(leaf) for i, leaf in enumerate(leaves)}
    values |= {f"input.{i}": v.detach() for i, v in enumerate(owned) if isinstance(v, Tensor)}
    return values, drew
