"""Run a case: in eager, as a float64 reference, and compiled. Nothing of the case changes.

Every run has its own copy of graph, inputs, buffers; the case's modes around it; the same seed
right before the call. Results are named `out0` (leaves of the output), `in0` (tensor inputs after
the run, numbered by placeholder) and, when `modes.backward`, `grad_in0` (gradients of the inputs
that require one; None when there is none).

What it does not do: it compares nothing (compare.py), judges nothing (oracle/judge.py), and kills
nothing that hangs (oracle/pool.py).
"""

import dataclasses
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Literal

import torch
from torch import Tensor
from torch.fx import GraphModule

from ctk.compiler.errors import CaseError, PrecisionRefused
from ctk.compiler.observe import Observer, first_line
from ctk.compiler.torch_compat import dynamo_control_flow, tree_leaves
from ctk.toolkit.case.case import Case, Modes
from ctk.toolkit.run.clone import clone_inputs, snapshot
from ctk.toolkit.run.dynamo_context import handed_over
from ctk.toolkit.run.modes import applied, generator_state, seed_generators, without_autocast
from ctk.toolkit.run.node_values import graph_values
from ctk.toolkit.run.private_copy import Eager, Promoted, prepare
from ctk.toolkit.run.random_draws import Tape, recording, replaying

__all__ = [
    "Outcome",
    "Result",
    "clone_inputs",
    "graph_values",
    "run_compiled",
    "run_eager",
    "run_graph",
    "run_reference",
]

Phase = Literal["compile", "call"]


@dataclass(frozen=True, slots=True)
class Result:
    """One named value of a run: a tensor (detached), a Python scalar, or None."""

    name: str
    value: object


@dataclass(frozen=True, slots=True, eq=False)
class Outcome:
    """What a run gave: results, or the exception.

    Attributes:
        results: In the order outputs, inputs, gradients; None when the run raised.
        error: The exception; it keeps its type and traceback.
        phase: Whether the exception came from compiling or from calling.
        dtype: float64 when the floats were computed in float64; None: in the program's own dtypes.
        note: Why a float64 run was not possible.
        drew_random: Whether the call used torch's random generators.
        generators: Their states after the call.
    """

    results: tuple[Result, ...] | None
    error: BaseException | None = None
    phase: Phase = "call"
    dtype: torch.dtype | None = None
    note: str = ""
    drew_random: bool = False
    generators: tuple[Tensor, ...] = field(repr=False, default=())


def run_graph(gm: GraphModule, inputs: Sequence[object], modes: Modes) -> Outcome:
    """Run a graph in eager under `modes`, on copies; an exception is part of the outcome."""
    try:
        private, owned = prepare(gm, inputs)
        with applied(modes):
            return _called(Eager(private), owned, modes)
    except Exception as error:
        return Outcome(None, error)


def run_eager(case: Case, *, dtype: torch.dtype | None = None) -> Outcome:
    """Run a case in eager.

    Args:
        case: Only read.
        dtype: `torch.float64` gives the reference: see `run_reference`. None: as the program says.
    """
    if dtype is None:
        return run_graph(case.graph, case.inputs, case.modes)
    if dtype is not torch.float64:
        raise ValueError(f"a reference is computed in torch.float64, not {dtype}")
    return run_reference(case, run_graph(case.graph, case.inputs, case.modes))


def run_reference(case: Case, eager: Outcome) -> Outcome:
    """Run a case in eager with all floats in float64 (promote.py), and equal draws (replay.py).

    Args:
        case: Only read.
        eager: Its eager run.

    Returns:
        The float64 results, with `dtype=torch.float64`. When the program has no float64 form:
        `eager` itself, with a `note` that says which node refused.
    """
    if eager.results is None:
        return eager
    try:
        play = replaying(_tape(case)) if eager.drew_random else nullcontext()
        private, owned = prepare(case.graph, case.inputs, dtype=torch.float64)
        modes = dataclasses.replace(case.modes, autocast=(), default_dtype="float64")
        with applied(modes):
            outcome = _called(Promoted(private), owned, modes, around=play)
    except PrecisionRefused as refusal:
        return dataclasses.replace(eager, note=str(refusal))
    except Exception as error:  # the program itself runs, so only float64 can be the reason
        return dataclasses.replace(eager, note=f"float64 refused in backward: {first_line(error)}")
    return dataclasses.replace(outcome, dtype=torch.float64)


def run_compiled(case: Case, *, observer: Observer | None = None) -> Outcome:
    """Compile a case with its target and call the result once.

    Example inputs and run inputs are separate clones, because a target may run the program while it
    compiles.

    Args:
        case: Only read.
        observer: Handed to the target.

    Raises:
        TargetError: The target is unknown or cannot be imported.
        ConfigError: The target does not take `case.config`.
        CaseError: `case.dynamic` does not fit the inputs.
    """
    from ctk.toolkit.targets import (
        resolve_target,  # imports the compiler under test: only when needed
    )

    target = resolve_target(case.target)
    target.check_config(case.config)
    private, owned = prepare(case.graph, case.inputs, lazy=False)
    examples = clone_inputs(case.inputs)
    with applied(case.modes):
        with handed_over(private, examples, case.dynamic) as example_inputs:
            try:
                call = target.compile(
                    private, example_inputs, config=case.config, observer=observer
                )
            except Exception as error:
                if isinstance(error, dynamo_control_flow()):
                    raise CaseError(
                        f"{case.name} cannot be compiled without Dynamo, which would trace again "
                        f"({type(error).__name__}: {first_line(error)}); capture it once more"
                    ) from error
                return Outcome(None, error, "compile")
        try:
            return _called(call, owned, case.modes)
        except Exception as error:
            return Outcome(None, error)


def _called(
    call: Callable[..., object],
    inputs: Sequence[object],
    modes: Modes,
    around: AbstractContextManager[None] | None = None,
) -> Outcome:
    seed_generators(modes.seed)
    before = generator_state()
    with around or nullcontext():
        results = _results(call, inputs, modes)
    after = generator_state()
    drew = any(not torch.equal(a, b) for a, b in zip(before, after, strict=False))
    return Outcome(results, drew_random=drew, generators=after)


def _results(
    call: Callable[..., object], inputs: Sequence[object], modes: Modes
) -> tuple[Result, ...]:
    """Call once and read everything; outputs are cloned at once: they may alias inputs, buffers."""
    leaves = tree_leaves(call(*inputs))
    results = [Result(f"out{i}", snapshot(leaf)) for i, leaf in enumerate(leaves)]
    tensors = [(i, value) for i, value in enumerate(inputs) if isinstance(value, Tensor)]
    results += [Result(f"in{i}", tensor.detach()) for i, tensor in tensors]
    if modes.backward:
        with without_autocast():
            results += _gradients(leaves, tensors)
    return tuple(results)


def _gradients(leaves: Sequence[object], inputs: Sequence[tuple[int, Tensor]]) -> list[Result]:
    wanted = [(i, tensor) for i, tensor in inputs if tensor.requires_grad]
    outputs = [
        (i, leaf)
        for i, leaf in enumerate(leaves)
        if isinstance(leaf, Tensor) and leaf.requires_grad
    ]
    if not wanted or not outputs:
        return [Result(f"grad_in{i}", None) for i, _ in wanted]
    gradients = torch.autograd.grad(
        [leaf for _, leaf in outputs],
        [tensor for _, tensor in wanted],
        [tangent(index, leaf) for index, leaf in outputs],
        allow_unused=True,
    )
    named = zip(wanted, gradients, strict=True)
    return [Result(f"grad_in{i}", snapshot(gradient)) for (i, _), gradient in named]


def tangent(index: int, output: Tensor) -> Tensor:
    """Return the tangent of output number `index`, exactly the same numbers in each dtype.

    1. A scalar gets 1, as from `loss.backward()`.
    2. Another shape gets seeded randn, and 1 in a random half of its elements: the gradient of a
       sum is 1, and backward graphs that round or compare are often wrong at such numbers only.

    Drawn in float32 and rounded to bfloat16, which float16, float32 and float64 represent:
    otherwise eager in a small dtype would start from other tangents than its reference does.
    """
    generator = torch.Generator().manual_seed(index)
    if output.dim() == 0:
        return torch.ones_like(output)
    draws = torch.randn((3, *output.shape), generator=generator, dtype=torch.float32)
    real, imaginary, coin = draws.to(torch.bfloat16).to(torch.float64)
    real = torch.where(coin > 0, 1.0, real)
    value = torch.complex(real, imaginary) if output.is_complex() else real
    return value.to(device=output.device, dtype=output.dtype)


def _tape(case: Case) -> Tape:
    tape: Tape = []
    private, owned = prepare(case.graph, case.inputs)
    with applied(case.modes):
        _called(Eager(private), owned, case.modes, around=recording(tape))
    return tape
