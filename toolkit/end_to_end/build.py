"""Build a fresh program for each play, so that no play sees the changes of another.

1. A file is loaded again, if a second load gives the same model and inputs.
2. Otherwise, and for a callable, model and inputs are deep-copied together, so that shared objects
   stay shared in the copy.
3. An object without a copy (a lock, an open file) is used as it is.

In all cases `Builds.keep_state` restores the state of the program's functions: global names,
closures, modules beside a file. Changes to files or in C++ are not undone.
"""

import copy
import dataclasses
from contextlib import AbstractContextManager

import torch
from torch import Tensor

from ctk.compiler.errors import CtkError
from ctk.compiler.fx.clone import clone_inputs, is_freed
from ctk.repro_templates.numbers.compare import runs_identical
from ctk.repro_templates.program.program_arguments import Arguments, arguments_named
from ctk.repro_templates.program.program_play import Playable
from ctk.repro_templates.program.program_state import state_of, tensors_of
from ctk.toolkit.case.usercode.program import UserProgram, load_program
from ctk.toolkit.execution.python_state import keep_state


class Builds:
    """Builds fresh copies of a program.

    Args:
        program: Only read, and not run.
    """

    def __init__(self, program: UserProgram) -> None:
        self._program = program
        self._spare: list[UserProgram] = []
        self._reloads: bool | None = None

    def fresh(self) -> UserProgram:
        """Return a program that the caller may run and change."""
        if self._reloads is None:
            self._reloads = bool(self._program.spec) and self._gives_the_same()
        if self._spare:
            return self._spare.pop()
        if self._reloads:
            return load_program(self._program.spec)
        return copy_program(self._program)

    def keep_state(self, fresh: UserProgram) -> AbstractContextManager[None]:
        """Return a context after which everything that a run of `fresh` reached is put back."""
        return keep_state([each for p in (fresh, self._program) for each in (p.model, p.between)])

    def playable(self, fresh: UserProgram) -> Playable:
        """Return a program as it is played."""
        calls = calls_of(fresh)
        return Playable(
            fresh.model,
            calls,
            lambda: copy_arguments(calls[-1]),
            fresh.between,
            bool(fresh.warmups) or fresh.between is not None,
        )

    def _gives_the_same(self) -> bool:
        """Return whether loading the file again gives the same program again."""
        try:
            again = load_program(self._program.spec)
        except CtkError:  # a file that registers something may be loaded only once
            return False
        ours, its = _state(self._program), _state(again)
        is_same = ours.keys() == its.keys() and runs_identical(ours, its)
        self._spare = [again] if is_same else []
        return is_same


def calls_of(program: UserProgram) -> list[Arguments]:
    """Return the arguments of each call, those of the last one at the end."""
    return [*program.warmups, Arguments(program.inputs, program.kwargs)]


def copy_program(program: UserProgram) -> UserProgram:
    """Return a copy of a program; without a copy of its model, at least with copied inputs."""
    calls = calls_of(program)
    is_module = isinstance(program.model, torch.nn.Module)
    memo = _clones(*([program.model] if is_module else []), *map(arguments_named, calls))
    try:
        model, made = copy.deepcopy((program.model, calls), memo)
    except Exception:  # a lock, a file, a generator: it is run as it is
        model, made = program.model, [copy_arguments(call) for call in calls]
    last = made.pop()
    return dataclasses.replace(
        program, model=model, inputs=last.args, kwargs=last.kwargs, warmups=tuple(made)
    )


def copy_arguments(arguments: Arguments) -> Arguments:
    """Return a copy of the arguments of a call; an object without a copy is passed as it is."""
    try:
        return copy.deepcopy(arguments, _clones(arguments_named(arguments)))
    except Exception:
        values = clone_inputs([*arguments.args, *arguments.kwargs.values()])
        count = len(arguments.args)
        kwargs = dict(zip(arguments.kwargs, values[count:], strict=True))
        return Arguments(values[:count], kwargs)


def _clones(*roots: object) -> dict[int, object]:
    """Return clones of all tensors that are held, by the id of the original, for a `deepcopy`."""
    tensors = [each for each in tensors_of(*roots).values() if not is_freed(each)]
    clones = clone_inputs(tensors)
    for tensor, clone in zip(tensors, clones, strict=True):
        if isinstance(clone, Tensor) and tensor.is_leaf and tensor.grad is not None:
            clone.grad = tensor.grad.detach().clone()
    return {id(tensor): clone for tensor, clone in zip(tensors, clones, strict=True)}


def _state(program: UserProgram) -> dict[str, object]:
    return state_of(program.model, *map(arguments_named, calls_of(program)))
