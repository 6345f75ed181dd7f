"""Play a program: make all its calls, in eager or compiled, and read after each what it left.

    call 1 .. n-1   warmups(), or a first call with the inputs of the last one
    between(module)
    call n          the inputs of the program
    call n + 1      the same with other sizes: what is compiled anew for them is looked at too

Each call has its own copy of its arguments and begins with the same seed. What is read: the
results by name (`out0`, `out0.logits`), the exception, and all that the program keeps
(`held.weight`, `grad.in0`, `state.calls`; state.py), with what results are besides numbers (their
types; repro_templates/layout.py). What it does not do: compare (compare.py).
"""

import contextlib
import dataclasses
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ctk.compiler.errors import CtkError, ProgramError
from ctk.compiler.fx.clone import clone_value
from ctk.compiler.torch_compat.settings import settings_put_on
from ctk.compiler.torch_compat.stance import eager_stance
from ctk.repro_templates.layout import layout_of
from ctk.repro_templates.running import (
    STATES,
    Run,
    generator_states,
    seed_generators,
    tangent,
    under,
)
from ctk.toolkit.case.case import Modes
from ctk.toolkit.end_to_end.build import arguments_copied, calls_of, named
from ctk.toolkit.end_to_end.nested import as_value, form_of, leaves_of
from ctk.toolkit.end_to_end.resize import resized
from ctk.toolkit.end_to_end.state import state_of, tensors_of
from ctk.toolkit.run.modes import current_modes, reference_state
from ctk.toolkit.usercode.program import SEED, Arguments, Program, seeded


@dataclass(frozen=True, slots=True, eq=False)
class Played:
    """What one call gave.

    Attributes:
        run: Its results and all that the program keeps, by name.
        form: The types of what it returned, as one text.
        error: What it raised; then there are no results.
        compiles: How many graphs were compiled in it.
    """

    run: Run
    form: str = ""
    error: BaseException | None = None
    compiles: int = 0


@dataclass(frozen=True, slots=True)
class How:
    """How a program is played.

    Attributes:
        modes: The ambient state around each call, and the seed.
        calls: How many calls are made at least.
        backend: The Dynamo backend under test; None: eager.
        is_dynamic: Whether sizes are symbolic wherever Dynamo can.
        around: Entered for each call: a float64 reference.
        in_float64: Whether that is what is played.
        resized: Whether one more call has other sizes, where the inputs allow it (resize.py).
    """

    modes: Modes
    calls: int = 2
    backend: Callable[..., Any] | None = None
    is_dynamic: bool = False
    around: Callable[[], AbstractContextManager[object]] = contextlib.nullcontext
    in_float64: bool = False
    resized: bool = False


def play(program: Program, how: How) -> list[Played]:
    """Make all calls of a program; it is changed by them.

    Args:
        program: Private to this play.
        how: In eager or compiled.

    Raises:
        ProgramError: `backward` is wanted, and the eager program has nothing to differentiate.
        CtkError: The target or its options are wrong.
    """
    state = dataclasses.asdict(how.modes)
    state = reference_state(state) if how.in_float64 else state
    played: list[Played] = []
    compiles = [0]
    torch.compiler.reset()
    with contextlib.ExitStack() as stack:
        stack.enter_context(settings_put_on(program.settings))
        stack.enter_context(under(state, STATES))
        stack.enter_context(_stance(how, compiles))
        call = _compiled(program, how)
        calls = _all_calls(program, how.calls)
        last = len(calls) - 1
        calls += resized(calls[-1]) if how.resized else []
        for number, arguments in enumerate(calls):
            before = compiles[0]
            with seeded(SEED + 1 + number), how.around():
                if number == last and program.between is not None:
                    program.between(program.model)
                found = _called(call, program, arguments, how)
            played.append(dataclasses.replace(found, compiles=compiles[0] - before))
    return played


def default_modes(program: Program, *, backward: bool) -> Modes:
    """Return the modes in which a program is used: in evaluation mode, without gradients."""
    is_inference = isinstance(program.model, torch.nn.Module) and not program.model.training
    grad = torch.is_grad_enabled() and (backward or not is_inference)
    return dataclasses.replace(current_modes(backward=backward), grad=grad)


def _all_calls(program: Program, count: int) -> list[Arguments]:
    """Return the arguments of each call; with the last one's first where there are too few."""
    calls = calls_of(program)
    return [*(arguments_copied(calls[-1]) for _ in range(count - len(calls))), *calls]


def _stance(how: How, compiles: list[int]) -> AbstractContextManager[object]:
    """Return the stance of torch for a play: all that is compiled goes to the backend."""
    backend = how.backend
    if backend is None:
        return eager_stance()

    def counted(gm: Any, example_inputs: Any, **_: Any) -> Any:
        compiles[0] += 1
        return backend(gm, example_inputs)

    return torch.compiler.set_stance("default", force_backend=counted)


def _compiled(program: Program, how: How) -> Callable[..., object]:
    if how.backend is None:
        return program.model
    asked = {k: v for k, v in program.compile.items() if k in ("dynamic", "fullgraph")}
    # None, not False: False would forbid the sizes that inputs() has marked as dynamic.
    keywords: Any = {"dynamic": None, **asked, **({"dynamic": True} if how.is_dynamic else {})}
    return torch.compile(program.model, backend="eager", **keywords)


def _called(
    call: Callable[..., object], program: Program, arguments: Arguments, how: How
) -> Played:
    seed_generators(how.modes.seed)
    before, error, result = generator_states(), None, None
    try:
        result = call(*arguments.args, **arguments.kwargs)
        if how.modes.backward:
            _differentiate(result, program)
    except (CtkError, KeyboardInterrupt):
        raise
    except BaseException as raised:  # SystemExit too: it is the program's
        error = raised
    after = generator_states()
    drew = any(not torch.equal(a, b) for a, b in zip(before, after, strict=False))
    keeps = state_of(program.model, named(arguments))
    kept = tensors_of(program.model, named(arguments))
    held = {f"held.{name}": tensor for name, tensor in kept.items()}
    if error is not None:
        return Played(Run(keeps, after, drew, layout=layout_of(held, {})), error=error)
    leaves = [(leaf.path, leaf.value) for leaf in leaves_of(result, "out")]
    outs = {_out_name(path): value for path, value in leaves}
    values = {name: clone_value(as_value(value)) for name, value in outs.items()}
    layout = layout_of({**outs, **held}, {})
    return Played(Run(values | keeps, after, drew, layout=layout), form_of(result))


def _out_name(path: str) -> str:
    """Return `out0` for the only result and for the first of a tuple, as cases call them."""
    if path == "out":
        return "out0"
    index, bracket, rest = path.removeprefix("out[").partition("]")
    return f"out{index}{rest}" if path.startswith("out[") and bracket else path


def _differentiate(result: object, program: Program) -> None:
    """Run the backward pass of all results that require one, each with tangents of its own."""
    tensors = [leaf.value for leaf in leaves_of(result) if isinstance(leaf.value, Tensor)]
    wanted = [tensor for tensor in tensors if tensor.requires_grad]
    if not wanted:
        raise ProgramError(
            f"--backward: no output of {program.path.name} requires grad; "
            "give it parameters or inputs with requires_grad=True, outside of torch.no_grad()"
        )
    tangents = [tangent(index, each.detach()) for index, each in enumerate(wanted)]
    torch.autograd.backward(wanted, tangents)
