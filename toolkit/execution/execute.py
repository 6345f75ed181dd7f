"""Run a case in eager, as a float64 reference, and compiled, without changing it.

Every run has its own copy of graph, inputs and buffers, the case's modes around it, and the same
seed right before the call. repro_templates/graph/running.py makes the call and reads its results,
here and in repros.
"""

import contextlib
import dataclasses
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from typing import Literal

import torch
from torch.fx import GraphModule

from ctk.compiler.errors import CaseError, ExportRefused, PrecisionRefused, UnsupportedPlatform
from ctk.compiler.fx.clone import clone_inputs, clone_values, put_back
from ctk.compiler.installed_torch import refuse_missing_name
from ctk.compiler.observe import Observer, first_line, is_observers, mark_errors
from ctk.compiler.torch_compat.dynamo import dynamo_api as dynamo
from ctk.compiler.torch_compat.dynamo import tensor_sources
from ctk.compiler.torch_compat.fake.fake_tensors import Unbacked
from ctk.compiler.torch_compat.process.guarded_memory import (
    GuardBytes,
    guard_inputs,
    guarded_allocations,
    is_resize_refused,
)
from ctk.compiler.torch_compat.process.process_state import process_state_kept, start_autograd
from ctk.repro_templates.graph.random_draws import same_draws
from ctk.repro_templates.graph.running import STATES, Run, run_once, under
from ctk.toolkit.case.case import Case, Modes
from ctk.toolkit.execution.dynamo_context import dynamo_context
from ctk.toolkit.execution.modes import reference_state
from ctk.toolkit.execution.private_copy import Eager, UpcastEager, held_tensors, private_copy
from ctk.toolkit.execution.python_state import keep_python_state
from ctk.toolkit.processes.accelerator import has_lost_cuda
from ctk.toolkit.processes.link import limit_compiled
from ctk.toolkit.targets import resolve_target
from ctk.toolkit.targets.base import Target

Phase = Literal["compile", "call"]


@dataclass(frozen=True, slots=True, eq=False)
class Outcome:
    """The results of a run, or its exception.

    Attributes:
        dtype: `torch.float64` for a float64 reference; None: the program's own dtypes.
        note: Why a float64 run was not possible.
    """

    run: Run | None
    error: BaseException | None = None
    phase: Phase = "call"
    dtype: torch.dtype | None = None
    note: str = ""

    @property
    def values(self) -> Mapping[str, object]:
        """The results by name; empty when the run raised."""
        return self.run.values if self.run else {}

    @property
    def drew_random(self) -> bool:
        """Whether the call used torch's random generators."""
        return self.run is not None and self.run.drew_random


def run_graph(gm: GraphModule, inputs: Sequence[object], modes: Modes) -> Outcome:
    """Run a graph in eager under `modes`, on copies; an exception is part of the outcome.

    Raises:
        MissingTorchName: The installed torch lacks a name that ctk needs to run a graph.
    """
    try:
        return run_private(gm, inputs, modes)
    except Exception as error:
        refuse_missing_name(error)
        return Outcome(None, error)


def run_eager(case: Case) -> Outcome:
    """Run a case in eager."""
    return run_graph(case.graph, case.inputs, case.modes)


def run_reference(case: Case, eager: Outcome) -> Outcome:
    """Run a case in eager with all floats in float64 (`upcast_graph`), and equal draws.

    Returns:
        The float64 results, with `dtype=torch.float64`. If the program has no float64 form:
        `eager` itself, with a `note` that names the refusing node.
    """
    if eager.run is None:
        return eager
    try:
        return run_upcast(case.graph, case.inputs, case.modes, is_random=eager.drew_random)
    except PrecisionRefused as refusal:
        return dataclasses.replace(eager, note=str(refusal))
    except Exception as error:  # the program itself runs, so only float64 can be the reason
        return dataclasses.replace(eager, note=f"float64 refused in backward: {first_line(error)}")


def run_upcast(
    gm: GraphModule,
    inputs: Sequence[object],
    modes: Modes,
    *,
    is_random: bool,
    runner: type[Eager] = UpcastEager,
) -> Outcome:
    """Run a graph with all floats in float64.

    Args:
        modes: Those of the program; its autocast regions are left out.
        is_random: Draw the numbers that a run in the program's own dtypes draws (random_draws.py).

    Raises:
        PrecisionRefused: The program has no float64 form.
    """
    play = None
    if is_random:
        play = same_draws(lambda tape: run_private(gm, inputs, modes, around=tape))
    return run_private(gm, inputs, modes, upcast=True, runner=runner, around=play)


def run_private(
    gm: GraphModule,
    inputs: Sequence[object],
    modes: Modes,
    *,
    upcast: bool = False,
    runner: type[Eager] = Eager,
    around: AbstractContextManager[None] | None = None,
) -> Outcome:
    """Run a private copy of a graph under `modes`; the exceptions of the program pass through.

    Args:
        upcast: Compute all floats in float64.
        around: Entered for the call and the gradients.
    """
    private, owned = private_copy(gm, inputs, upcast=upcast)
    state = dataclasses.asdict(modes)
    state = reference_state(state) if upcast else state
    with under(state, STATES), keep_python_state(gm):
        held = dict(held_tensors(private))
        run = run_once(runner(private), owned, state, STATES, around, held=held)
    if not run.is_seeded:
        return run_private(gm, inputs, modes, upcast=upcast, runner=runner, around=around)
    return Outcome(run, dtype=torch.float64 if upcast else None)


class _RunsInEager(CaseError):
    """The target asks Dynamo to run the graph in eager, or to trace it again."""


def _raise_refusal(case: Case, error: BaseException) -> None:
    """Raise `CaseError` for a refusal of the target, and where Dynamo takes another way.

    Raises:
        MissingTorchName, UnsupportedPlatform: ctk cannot compile here, which is not a failure of
            the target.
    """
    if isinstance(error, UnsupportedPlatform):
        raise error
    refuse_missing_name(error)
    if isinstance(error, ExportRefused):
        raise CaseError(f"{case.name}: {error}") from error
    if resolve_target(case.target).steers_dynamo(error):
        is_left = isinstance(error, dynamo.fallbacks())
        way = "runs it in eager" if is_left else "traces again; next: capture the case once more"
        raise _RunsInEager(
            f"not compiled: {case.target} raises {type(error).__name__}"
            f" ({first_line(error)}), for which Dynamo {way}"
        ) from error


def run_compiled(
    case: Case,
    *,
    observer: Observer | None = None,
    target: Target | None = None,
    is_called: bool = True,
    then: "Then | None" = None,
    guard: GuardBytes | None = None,
) -> Outcome:
    """Compile a case with its target and call the result once.

    Example inputs and run inputs are separate clones, because a target may run the program while it
    compiles.

    Args:
        observer: Passed to the target. The state of its graphs is restored after the call, so that
            they can be run again.
        is_called: False: only compile; the outcome has no run.
        then: Called after the first call, under the same modes, with the compiled function and its
            inputs; its exceptions count as those of the compiled program.
        guard: Surrounds the inputs and the buffers of generated code.

    Raises:
        TargetError: The target is unknown or cannot be imported.
        ConfigError: The target does not take `case.config`.
        CaseError: `case.dynamic` does not fit the inputs, or Dynamo runs the graph in eager.
        Exception: An exception of the observer, which is not one of the case.
    """
    start_autograd()
    target, observer = target or resolve_target(case.target), mark_errors(observer)
    target.check_config(case.config)
    run = partial(
        _run_compiled, case, target, observer=observer, is_called=is_called, then=then, guard=guard
    )
    try:
        return run(Unbacked.configured())
    except _RunsInEager:
        if case.signature is None or case.signature.is_measured:  # `--compile-above`: a question
            raise
        return run(Unbacked())  # it was compiled when it failed: Dynamo had `fullgraph=True`


def _run_compiled(
    case: Case,
    target: Target,
    unbacked: Unbacked,
    *,
    observer: Observer | None,
    is_called: bool,
    then: "Then | None",
    guard: GuardBytes | None,
) -> Outcome:
    private, owned = private_copy(case.graph, case.inputs, lazy=False)
    examples, state = clone_inputs(case.inputs), dataclasses.asdict(case.modes)
    held = dict(held_tensors(private))
    guarded = _guarded(owned, held, guard)
    # A called module may write into its state when it is traced (BatchNorm counts its batches).
    rewind = partial(put_back, [*held.values()], clone_values([*held.values()]))
    marks = {k: role.static for k, role in case.roles.items() if role.static}
    if case.roles:
        tensor_sources.present(private, marks)
    with under(state, STATES), keep_python_state(case.graph), limit_compiled(), guarded:
        with dynamo_context(case, private, examples, unbacked) as example_inputs:
            rewind()
            try:
                with process_state_kept():
                    call = target.compile(
                        private, example_inputs, config=case.config, observer=observer
                    )
            except BaseException as error:  # also sys.exit: it comes from the compiler
                if isinstance(error, KeyboardInterrupt) or is_observers(error):
                    raise
                _raise_refusal(case, error)
                return Outcome(None, error, "compile")
        rewind()
        if not is_called:
            return Outcome(None)
        try:
            return _call(lambda: run_once(call, owned, state, STATES, held=held), call, owned, then)
        finally:
            if not has_lost_cuda():  # else the state is lost, and the outcome reports it
                rewind()


def _guarded(
    inputs: Sequence[object], held: Mapping[str, torch.Tensor], guard: GuardBytes | None
) -> AbstractContextManager[None]:
    if guard is None:
        return contextlib.nullcontext()
    guard_inputs(inputs, held.values(), guard)
    return guarded_allocations(guard)


def run_in_guarded_memory(case: Case, *, observer: Observer | None = None) -> Outcome:
    """Compile a case and call it with guarded memory; without guards if it resizes an input."""
    outcome = run_compiled(case, observer=observer, guard=GuardBytes())
    if is_resize_refused(outcome.error):
        return run_compiled(case, observer=observer)
    return outcome


Then = Callable[[Callable[..., object], Sequence[object]], object]
"""Gets a compiled function and its inputs."""


def _call(
    run: Callable[[], Run],
    call: Callable[..., object],
    inputs: Sequence[object],
    then: Then | None,
) -> Outcome:
    """Return the outcome of a first call; an exception, also of `then`, is part of it."""
    try:
        with process_state_kept():
            outcome = Outcome(run())
            if then is not None:
                then(call, inputs)
            return outcome
    except BaseException as error:
        if isinstance(error, KeyboardInterrupt) or is_observers(error):
            raise
        refuse_missing_name(error)
        return Outcome(None, error)
