"""Copy all state that a first call can reach: for the check, and to undo the call.

A graph reaches its inputs, its own state (parameters, buffers, constants, generators) and torch's
default generators. One copy is made of all, so that tensors that share memory do so in the copy.
It does not undo changes of Python variables by a failed call of the program; runs of ctk restore
them (execution/python_state.py).
"""

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Generator

from ctk.compiler.errors import CaseError
from ctk.compiler.fx.clone import put_back, state_in
from ctk.compiler.torch_compat.aot.autograd import remember_versions
from ctk.repro_templates.graph.running import generator_states, set_generator_states
from ctk.toolkit.case.case import Case
from ctk.toolkit.execution.private_copy import held_state, private_copy
from ctk.toolkit.watch.dump import compute_guarded, run_guarded
from ctk.toolkit.watch.watch_session import WatchOptions


@dataclass(frozen=True, slots=True, eq=False)
class StateCopy:
    """A graph and its inputs before the first call."""

    case: Case
    _undo: Callable[[], None]

    def restore(self) -> bool:
        """Restore the program's state before the call; return whether that succeeded."""
        return run_guarded(self._undo, "undoing a failed call (no fallback)")


def copy_state(options: WatchOptions, case: Case, args: tuple[object, ...]) -> StateCopy | None:
    """Return a copy of the state of a first call; None if not needed or not possible."""
    if options.check == "off" and options.leaves_errors:
        return None
    label = f"cloning the inputs of {case.name} (no check, no fallback)"
    return compute_guarded(lambda: _make_copy(case, args), label)


def _make_copy(case: Case, args: tuple[object, ...]) -> StateCopy:
    graph, inputs = private_copy(case.graph, args, lazy=False)
    live = [*args, *(each.value for each in held_state(case.graph))]
    saved = [*inputs, *(each.value for each in held_state(graph))]
    undo = _make_undo(
        [state for value in live for state in state_in(value)],
        [state for value in saved for state in state_in(value)],
    )
    return StateCopy(dataclasses.replace(case, graph=graph, inputs=inputs), undo)


def _make_undo(live: list[object], saved: list[object]) -> Callable[[], None]:
    """Return the function that restores `live` to its current state, whose copy is `saved`."""
    tensors = [value for value in live if isinstance(value, torch.Tensor)]
    before = [_fixed_properties(tensor) for tensor in tensors]
    versions = remember_versions(tensors)
    defaults = generator_states()

    def undo() -> None:
        if [_fixed_properties(tensor) for tensor in tensors] != before:
            raise CaseError("a tensor has another shape, memory or place in autograd than before")
        put_back(live, saved)
        for value, old in zip(live, saved, strict=True):
            if isinstance(value, Generator) and isinstance(old, Generator):
                value.set_state(old.get_state())
        versions()
        set_generator_states(defaults)

    return undo


def _fixed_properties(tensor: torch.Tensor) -> tuple[object, ...]:
    """Return the properties of a tensor that restoring its values does not restore."""
    node = None if tensor.grad_fn is None else id(tensor.grad_fn)
    plain = tensor.layout is torch.strided and type(tensor) in (torch.Tensor, torch.nn.Parameter)
    memory = (tensor.data_ptr(), tensor.stride()) if plain else ()
    return (tensor.shape, tensor.dtype, tensor.requires_grad, node, *memory)
