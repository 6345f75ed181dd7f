"""Play a program: make all its calls, in eager or compiled, and read its results and state.

    call 1 .. n-1   warmups(), or a first call with the inputs of the last one
    between(module)
    call n          the inputs of the program
    call n + 1      the same with other sizes: tests recompiled code
    call n + 2      the same with other values: tests values kept by the compiler
    call n + 3 ..   the same in other memory (program_aliases.py): tests guards on it

Each call begins with the same seed. Read after it are: the results by name (`out0`, `out0.logits`),
the exception, the state of the program (`held.weight`, `grad.in0`, `state.calls`;
program_state.py), the current arguments and results of the call before (`earlier.out0`), modes of
torch (`state.torch.grad`), and the types and layout of the results (layout.py).

A play changes the program: the caller builds it again for each, or plays it in a process of its
own.
"""

import contextlib
import importlib
import math
import random
import sys
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, cast

import torch
from torch import Tensor

from ctk.compiler.errors import CtkError
from ctk.compiler.fx.clone import clone_value, extent, is_freed
from ctk.compiler.torch_compat.process.process_state import outside_function_modes
from ctk.compiler.torch_compat.process.settings import set_options
from ctk.repro_templates.graph.exceptions import Raised, describe_error
from ctk.repro_templates.graph.excuses import NO_VARIATION, Variation, varied
from ctk.repro_templates.graph.loading import require
from ctk.repro_templates.graph.random_draws import Tape, recording, replaying
from ctk.repro_templates.graph.running import (
    Run,
    generator_states,
    generators_kept,
    same_states,
    seed_generators,
    tangent,
)
from ctk.repro_templates.graph.settings import default_dtype
from ctk.repro_templates.numbers.float64 import InFloat64, wider
from ctk.repro_templates.numbers.layout import has_memory, layout_of
from ctk.repro_templates.numbers.plain_parts import take_apart
from ctk.repro_templates.program.program_aliases import ALIASES, alias_arguments
from ctk.repro_templates.program.program_arguments import (
    Arguments,
    arguments_named,
    arguments_of,
    exchange_values,
    resize_arguments,
    tensors_in,
)
from ctk.repro_templates.program.program_nested import as_value, form_of, leaves_of
from ctk.repro_templates.program.program_state import (
    ambient_state,
    is_in_memory,
    state_of,
    tensors_of,
)

SEED = 0
"""Seed of a program that sets none itself, so that it gives the same inputs every time."""

COMPILING = ("BackendCompilerFailed", "InductorError")
"""Wrappers of exceptions that were raised while a graph was compiled, besides those of Dynamo."""

BROKEN_DEVICE = "AcceleratorError"
"""After it a device answers no more: neither state is read nor another call made."""

CHANGES = {
    "sizes": "one more row in each input",
    "values": "other values in its inputs",
    "overlaps": "inputs that overlap in memory",
    "twins": "inputs on the same memory",
    "buffers": "inputs that are views of a buffer",
    "offsets": "inputs that begin inside of their memory",
    "same": "one tensor for several inputs",
    "strides": "inputs with other strides",
}
"""Changes of further calls against the program's own."""

Compile = Callable[[Any], Callable[..., object]]
"""Compiles a model."""


@dataclass(frozen=True, slots=True)
class Playable:
    """A program ready to be played; one play changes it.

    Attributes:
        again: Builds the arguments of the last call once more.
        between: Called with the model before the last call; None: no call.
        says_calls: Whether the program itself defines its calls.
    """

    model: Callable[..., object]
    calls: Sequence[Arguments]
    again: Callable[[], Arguments]
    between: Callable[..., object] | None = None
    says_calls: bool = False


@dataclass(frozen=True, slots=True)
class How:
    """The way a program is played.

    Attributes:
        calls: Least number of calls.
        more: Further calls, of `CHANGES`, after those of the program, if its inputs allow it and it
            does not define its calls.
        fresh: Whether each call is compiled again: no guard decides whether a graph is reused.
        exported: Whether the compiled side is exported: both sides run without gradients, and the
            model is exported again after `between`.
        nudged: 1 or -1: every float begins as its neighbour above or below; 0: as it is.
        settings: Settings of torch for the compiled side, by name.
        varied: Roundings, or contents of fresh memory, in eager.
        tapes: Random numbers for a float64 reference; empty: it draws its own.
    """

    calls: int = 1
    backward: bool = False
    seed: int = 0
    more: tuple[str, ...] = ()
    fresh: bool = False
    exported: bool = False
    in_float64: bool = False
    nudged: int = 0
    varied: Variation = NO_VARIATION
    settings: tuple[tuple[str, object], ...] = ()
    records: bool = False
    tapes: tuple[Tape, ...] = ()


@dataclass(frozen=True, slots=True, eq=False)
class Played:
    """The results of one call.

    Attributes:
        form: The types of its result, as one text.
        error: Its exception; then there are no results.
        is_compiling: Whether it was raised while a graph was compiled.
        drew: Whether random numbers were drawn in the call, or between it and the one before.
        tape: The numbers, if they were recorded.
        more: The change against the program's own calls: one of `CHANGES`; empty for those.
        touches: `arguments`, `buffers`: those of them that were written to, or returned as views.
        exception: The exception itself, in the process that made the call.
    """

    run: Run
    form: str = ""
    error: Raised | None = None
    is_compiling: bool = False
    drew: bool = False
    tape: Tape | None = None
    more: str = ""
    touches: tuple[str, ...] = ()
    exception: BaseException | None = None


def play(program: Playable, how: How, compiled: Compile | None = None) -> list[Played]:
    """Make all calls of a program; it is changed by them.

    Args:
        program: Private to this play, except for objects that cannot be copied.
        compiled: Compiles the model; None plays it in eager.

    Raises:
        PrecisionRefused: A float64 play is requested, and the program has no such form.
    """
    if how.settings and compiled is not None:
        with set_options(dict(how.settings)):
            return play(program, replace(how, settings=()), compiled)
    change = widen_data if how.in_float64 else None
    if how.nudged:
        change = partial(neighbours, towards=how.nudged * math.inf)
    own = own_calls(program, how)
    if change is None:
        return _make_calls(program, own, how, compiled)
    with change_data([program.model, *map(arguments_named, own)], change):
        return _make_calls(program, own, how, compiled)


@contextlib.contextmanager
def change_data(
    roots: Sequence[object], change: Callable[[Tensor], Tensor]
) -> Generator[None, None, None]:
    """Give every tensor that a program keeps other data in the body, and restore it after it.

    Args:
        roots: The model, and the arguments of its calls by name. Objects that functions among them
            name are the user's own, and cannot be copied. Inference tensors stay: they allow no
            other data.
    """
    groups: dict[object, list[Tensor]] = {}
    for number, tensor in enumerate(tensors_of(*roots).values()):
        if not tensor.is_inference() and not is_freed(tensor):
            groups.setdefault(_memory_key(tensor) or number, []).append(tensor)
    kept: list[tuple[Tensor, Tensor]] = []
    try:
        for group in groups.values():
            before = [tensor.data for tensor in group]
            for tensor, data, changed in zip(group, before, _change(before, change), strict=True):
                if changed is not data:
                    kept.append((tensor, data))
                    tensor.data = changed
        yield
    finally:
        for tensor, data in kept:
            tensor.data = data


def _memory_key(value: object) -> object:
    """Return the memory that a tensor could share with others of its dtype; None for no such."""
    if not has_memory(value):
        return None
    return value.device, value.untyped_storage().data_ptr(), value.dtype


def _change(group: Sequence[Tensor], change: Callable[[Tensor], Tensor]) -> list[Tensor]:
    """Return the changed data of tensors; those on one storage share memory again."""
    if len(group) == 1:
        return [change(group[0])]
    start = min(data.storage_offset() for data in group)
    spans = [data.storage_offset() + extent(data.shape, data.stride()) for data in group]
    memory = group[0].as_strided((max(spans) - start,), (1,), start)
    changed = change(memory)
    if changed is memory:
        return [*group]
    return [
        changed.as_strided(data.shape, data.stride(), data.storage_offset() - start)
        for data in group
    ]


def widen_data(data: Tensor) -> Tensor:
    """Return data in its float64 form; raise `PrecisionRefused` if it has none (float8)."""
    return data.to(wider(data.dtype))


def neighbours(data: Tensor, towards: float) -> Tensor:
    """Return the neighbour of every float in its own dtype.

    The results of the program are then as good as its own: they differ by its rounding.

    Args:
        towards: Infinity, or minus infinity.
    """
    if data.dtype not in (torch.float32, torch.float64) or data.layout is not torch.strided:
        return data
    return torch.nextafter(data, torch.full_like(data, towards))


def _make_calls(
    program: Playable, own: Sequence[Arguments], how: How, compiled: Compile | None
) -> list[Played]:
    calls = [*((each, "") for each in own), *further_calls(program, own[-1], how)]
    last = len(own) - 1
    call = compiled(program.model) if compiled else program.model
    is_inference = isinstance(program.model, torch.nn.Module) and not program.model.training
    is_wanted = torch.is_grad_enabled() and (how.backward or not is_inference) and not how.exported
    played: list[Played] = []
    earlier: dict[str, Tensor] = {}
    dtype = torch.float64 if how.in_float64 else torch.get_default_dtype()
    with torch.set_grad_enabled(is_wanted), default_dtype(dtype):
        for number, (given, more) in enumerate(calls):
            tape: Tape | None = [] if how.records else None
            fresh: list[str] = []
            seed = SEED + 1 + number + how.varied.numpy_seed
            with seed_all(SEED + 1 + number, seed), around_call(how, number, tape, fresh):
                before = generator_states()
                if number == last and program.between is not None:
                    program.between(program.model)
                    call = compiled(program.model) if compiled and how.exported else call
                drew = not same_states(before, generator_states())
                if how.fresh and compiled:
                    torch.compiler.reset()
                seed_generators(how.seed)
                found = one_call(
                    call,
                    program.model,
                    given,
                    backward=how.backward,
                    earlier=earlier,
                    owns_memory=how.exported,
                )
            drew = drew or found.run.drew_random
            run = replace(found.run, allocated=tuple(fresh))
            played.append(replace(found, run=run, drew=drew, tape=tape, more=more))
            if found.error is not None and found.error.name == BROKEN_DEVICE:
                break
    return played


def own_calls(program: Playable, how: How) -> list[Arguments]:
    """Return the arguments of the program's own calls.

    If the program makes too few calls, those of its last one come first.
    """
    calls = list(program.calls)
    return [*(program.again() for _ in range(how.calls - len(calls))), *calls]


def further_calls(program: Playable, last: Arguments, how: How) -> list[tuple[Arguments, str]]:
    """Return the arguments of further calls, and their change against the program's own."""
    wanted = [] if program.says_calls else how.more
    made = {"sizes": resize_arguments, "values": exchange_values}
    made |= {kind: partial(alias_arguments, kind, model=program.model) for kind in ALIASES}
    return [(each, name) for name in wanted for each in made[name](last)]


def one_call(
    call: Callable[..., object],
    model: object,
    given: Arguments,
    *,
    backward: bool = False,
    earlier: dict[str, Tensor] | None = None,
    owns_memory: bool = False,
) -> Played:
    """Call once and read everything.

    Args:
        earlier: Arguments and results of the call before, by name; replaced by those of this one.
        owns_memory: Whether results may share memory with tensors of the model in eager only.

    Raises:
        CtkError: The target or its options are wrong.
    """
    before, result, error = generator_states(), None, None
    within = {"arguments": tensors_in(given), "buffers": buffers_of(model)}
    versions = {name: _versions(tensors) for name, tensors in within.items()}
    try:
        result = call(*given.args, **given.kwargs)
        if backward:
            propagate(result)
    except (CtkError, KeyboardInterrupt):
        raise
    except BaseException as caught:  # SystemExit as well: it is the program's
        error = caught
    said = None if error is None else describe_error(error)
    if said is None or said.name != BROKEN_DEVICE:
        left = what_is_left(model, given, before, result, error, earlier, owns_memory=owns_memory)
        returned = {_memory_key(each.value) for each in leaves_of(result)} - {None}
        is_touched = {
            name: _versions(tensors) != versions[name]
            or any(_memory_key(each) in returned for each in tensors)
            for name, tensors in within.items()
        }
        return replace(left, touches=tuple(name for name, is_so in is_touched.items() if is_so))
    return Played(Run({}, before, drew_random=False), error=said, exception=error)


def buffers_of(model: object) -> list[Tensor]:
    """Return the buffers of a model; none of a function."""
    return [*model.buffers()] if isinstance(model, torch.nn.Module) else []


def _versions(tensors: Sequence[Tensor]) -> list[int]:
    """Return a number of each tensor that grows when it is written to; 0 in inference mode."""
    return [0 if tensor.is_inference() else tensor._version for tensor in tensors]


def what_is_left(
    model: object,
    given: Arguments,
    before: Sequence[Tensor],
    result: object,
    error: BaseException | None = None,
    earlier: dict[str, Tensor] | None = None,
    *,
    owns_memory: bool = False,
) -> Played:
    """Read the results of a call, and the state of the program.

    Args:
        before: States of the generators before it.
    """
    after = generator_states()
    drew = any(not torch.equal(a, b) for a, b in zip(before, after, strict=False))
    named = arguments_named(given)
    keeps = state_of(model, named)
    roots = (named,) if owns_memory else (model, named)
    held = {f"held.{name}": tensor for name, tensor in tensors_of(*roots).items()}
    known = {f"earlier.{n}": each for n, each in (earlier or {}).items() if not owns_memory}
    keeps |= {name: clone_value(tensor) for name, tensor in known.items()}
    keeps |= {f"state.torch.{name}": value for name, value in ambient_state().items()}
    if error is not None:
        run = Run(keeps, after, drew, layout=layout_of(held, known))
        kind = type(error)
        is_compiling = kind.__name__ in COMPILING or kind.__module__.startswith("torch._dynamo")
        return Played(run, "", describe_error(error), is_compiling, exception=error)
    outs = {name_of_result(leaf.path): leaf.value for leaf in leaves_of(result, "out")}
    results = take_apart({name: as_value(value) for name, value in outs.items()})
    values = {name: clone_value(value) for name, value in results.items()}
    layout = layout_of({**outs, **held}, known)
    if earlier is not None:
        earlier.clear()
        reached = {**tensors_of(named), **outs}
        earlier |= {n: each for n, each in reached.items() if is_in_memory(each)}
    return Played(Run(values | keeps, after, drew, layout=layout), form_of(result))


def name_of_result(path: str) -> str:
    """Return `out0` for the only result and for the first of a tuple, as in cases."""
    if path == "out":
        return "out0"
    index, bracket, rest = path.removeprefix("out[").partition("]")
    return f"out{index}{rest}" if path.startswith("out[") and bracket else path


def propagate(result: object) -> None:
    """Run the backward pass of all results that require one, each with a tangent of its own."""
    tensors = [leaf.value for leaf in leaves_of(result) if isinstance(leaf.value, Tensor)]
    wanted = [tensor for tensor in tensors if tensor.requires_grad]
    if wanted:
        with outside_function_modes():  # the same numbers in a float64 play
            tangents = [tangent(index, each.detach()) for index, each in enumerate(wanted)]
        torch.autograd.backward(wanted, tangents)


@contextlib.contextmanager
def seed_all(seed: int = SEED, numpy_seed: int | None = None) -> Generator[None, None, None]:
    """Seed torch, Python and numpy inside the `with` block; put their generators back after it."""
    # numpy imports it at its first use
    numpy: Any = importlib.import_module("numpy.random") if "numpy" in sys.modules else None
    kept, numpys = random.getstate(), numpy.get_state() if numpy else None
    try:
        with generators_kept():
            torch.manual_seed(seed)
            random.seed(seed)
            if numpy:
                numpy.seed(seed if numpy_seed is None else numpy_seed)
            yield
    finally:
        random.setstate(kept)
        if numpy:
            numpy.set_state(numpys)


@contextlib.contextmanager
def around_call(
    how: How, number: int, tape: Tape | None, fresh: list[str]
) -> Generator[None, None, None]:
    """Record the random numbers of a call, run it in float64 with those of another, or vary it.

    Args:
        fresh: Gets the operators that allocate memory, if its contents vary.
    """
    with contextlib.ExitStack() as stack:
        stack.enter_context(varied(how.varied, fresh))
        if tape is not None:
            stack.enter_context(recording(tape))
        if how.in_float64:
            stack.enter_context(InFloat64())
        if number < len(how.tapes):
            stack.enter_context(replaying(how.tapes[number]))
        yield


def playable_of(names: Mapping[str, Any]) -> Playable:
    """Return the program in a file's names: `model()`, `inputs()`, `warmups()`, `between`.

    Raises:
        CannotTell: One of them raises.
    """
    model, before = require("model()", names["model"]), generator_states()
    last = arguments_of(require("inputs()", names["inputs"]))
    calls = require("warmups()", names["warmups"]) if "warmups" in names else ()
    earlier = [arguments_of(each) for each in calls]

    def again() -> Arguments:
        with torch.random.fork_rng(devices=[]):
            torch.set_rng_state(before[0])
            return arguments_of(names["inputs"]())

    between = names.get("between")
    says_calls = bool(earlier) or between is not None
    return Playable(model, (*earlier, last), again, between, says_calls)


def compile_keywords(names: Mapping[str, Any]) -> dict[str, Any]:
    """Return the keywords of `COMPILE` about capture; options and modes are the target's."""
    value = names.get("COMPILE")
    table = cast("dict[str, Any]", value) if isinstance(value, dict) else {}
    return {k: v for k, v in table.items() if k in ("dynamic", "fullgraph")}


def settings_of(names: Mapping[str, Any]) -> dict[str, object]:
    """Return the settings of torch in `CONFIG`; a program may use that name for its own table."""
    value = names.get("CONFIG")
    table = cast("dict[object, object]", value) if isinstance(value, dict) else {}
    return {k: v for k, v in table.items() if isinstance(k, str) and k.startswith("torch.")}
