"""Play a program file as its user does: build, warm up, change between, call; read all it gave.

A program has `model()` and `inputs()`, and may have `warmups()`, which returns the arguments of
earlier calls of the same compiled model, `between(model)`, done before the last call, and the
constants `CONFIG` (settings of torch by full name) and `BACKWARD`.

    call1.out0, call1.out1     leaves of what a call returned     call1.in0      tensor arguments
    call1.structure            their nesting                      call1.alias    who shares memory
    call1.error                what it raised instead             call1.held_w   parameters, buffers
    call1.grad_in0             gradients, when they are wanted    call1.state:m.n  Python state

A call that raises is the last. What it does not do: compare, or keep one side's changes of Python
state from the other: each is played in a process of its own (program_sides.py).
"""

import contextlib
import pkgutil
import sys
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from itertools import combinations
from typing import Any, cast

import torch

from ctk.compiler.fx.clone import clone_value
from ctk.repro_templates.exceptions import raised
from ctk.repro_templates.plain_parts import PLAIN_CLASSES
from ctk.repro_templates.program_state import PLAIN, program_state, state_of
from ctk.repro_templates.running import generator_states, leaves, tangent

How = Mapping[str, Any]
"""How a program is played: `calls` (at least so many), `backward` (bool), `seed` (int), `wide` (in
float64), `fresh` (each call is compiled anew), `strides` (they count)."""


def play(
    program: Mapping[str, Any], compiled: Callable[[Any], Callable[..., object]] | None, how: How
) -> dict[str, object]:
    """Play one side of a program; return its results by name.

    Args:
        program: The names of its file.
        compiled: Compiles the model; None plays it in eager.
        how: See `How`.
    """
    put_settings_on(program)
    torch.manual_seed(0)
    model = program["model"]()
    arguments = arguments_of_calls(program, how)
    call = compiled(model) if compiled else model
    is_inference = isinstance(model, torch.nn.Module) and not model.training
    values: dict[str, object] = {}
    with torch.set_grad_enabled(is_differentiated(program, how) or not is_inference):
        for number, given in enumerate(arguments, 1):
            torch.manual_seed(number)
            if number == len(arguments) and "between" in program:
                program["between"](model)
            if how["fresh"] and compiled:
                torch.compiler.reset()
            torch.manual_seed(how["seed"])
            with widened_dtype(how["wide"]):
                found = one_call(program, widest(model, how), call, widest(given, how), how)
            values |= {f"call{number}.{name}": value for name, value in found.items()}
            if "error" in found:
                break
    return values


def arguments_of_calls(program: Mapping[str, Any], how: How) -> list[Any]:
    """Return the arguments of each call, drawn once; with the last one's where there are too few.

    All are made before the first call, from one seed, as whoever compares whole programs makes
    them: the seed of a call changes what the call draws, and nothing that it is given.
    """
    before = torch.get_rng_state()
    last = program["inputs"]()
    earlier = list(program["warmups"]()) if "warmups" in program else []
    after = torch.get_rng_state()
    while len(earlier) < how["calls"] - 1:
        torch.set_rng_state(before)
        earlier.insert(0, program["inputs"]())
    torch.set_rng_state(after)
    return [*earlier, last]


def is_differentiated(program: Mapping[str, Any], how: How) -> bool:
    """Return whether the backward pass is run: when asked, or when the file says `BACKWARD`."""
    return how["backward"] or program.get("BACKWARD") is True


def compile_keywords(program: Mapping[str, Any]) -> dict[str, Any]:
    """Return `COMPILE`, if the file means keywords of `torch.compile` by it."""
    value = program.get("COMPILE")
    table = cast("dict[str, Any]", value) if isinstance(value, dict) else {}
    known = ("dynamic", "fullgraph", "mode", "options")
    return dict(table) if all(name in known for name in table) else {}


def put_settings_on(program: Mapping[str, Any]) -> None:
    """Apply `CONFIG`: settings of torch by their full names."""
    settings = program.get("CONFIG")
    for name, value in (settings if isinstance(settings, dict) else {}).items():
        place, _, attribute = str(name).rpartition(".")
        owner: Any = sys.modules.get(place) or pkgutil.resolve_name(place)
        setattr(owner, attribute, value)


@contextlib.contextmanager
def widened_dtype(is_wide: bool) -> Generator[None, None, None]:
    """Make new floats float64 in the body, if that is wanted."""
    kept = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64 if is_wide else kept)
    try:
        yield
    finally:
        torch.set_default_dtype(kept)


def one_call(
    program: Mapping[str, Any], model: Any, call: Callable[..., object], given: Any, how: How
) -> dict[str, object]:
    """Call once and read everything."""
    args, kwargs = arguments_of(given)
    values: dict[str, object] = {}
    before = generator_states()
    try:
        result = call(*args, **kwargs)
        outputs, held = leaves(result), held_by(model)  # the call may put new tensors there
        values |= described(outputs, result, args, kwargs, held)
        if is_differentiated(program, how):
            propagate(outputs)
        values |= gradients_of([*leaves(args), *leaves(kwargs)], held)
    except Exception as error:
        values["error"] = said_error(error)
    if "error" in values and cast("Any", values["error"])[0] == "AcceleratorError":
        return values  # the device answers nothing more in this process
    drawn = zip(before, generator_states(), strict=False)
    values["random"] = any(not torch.equal(a, b) for a, b in drawn)
    tensors = {f"in{i}": each for i, each in tensors_of([*leaves(args), *leaves(kwargs)])}
    values |= {name: clone_value(each) for name, each in tensors.items()}
    values |= {f"held_{name}": clone_value(each) for name, each in held_by(model).items()}
    roots = {"model": model, "args": args, "kwargs": kwargs}
    if not how["wide"]:
        state = program_state(program, roots)
        values |= {f"state:{path}": each for path, each in state.items() if is_seen(path)}
    return values


def is_seen(path: str) -> bool:
    """Return whether a path of the state is no argument's tensor, which is compared as `in0`."""
    return path not in ("args", "kwargs")


def described(
    outputs: Sequence[object],
    result: object,
    args: Sequence[object],
    kwargs: Mapping[str, object],
    held: Mapping[str, torch.Tensor],
) -> dict[str, object]:
    """Return what a call returned: its leaves, nesting, gradients required, and aliases."""
    values: dict[str, object] = {"structure": nesting(result)}
    for index, each in enumerate(outputs):
        is_plain = isinstance(each, (torch.Tensor, *PLAIN))
        values[f"out{index}"] = clone_value(each) if is_plain else said_object(each)
    flags = (str(each.requires_grad) for _, each in tensors_of(outputs))
    values["requires_grad"] = ", ".join(flags)
    named = {f"out{i}": each for i, each in tensors_of(outputs)}
    named |= {f"in{i}": each for i, each in tensors_of([*leaves(args), *leaves(dict(kwargs))])}
    values["alias"] = ", ".join(aliases(named | {f"held_{n}": each for n, each in held.items()}))
    return values


def said_object(value: object) -> str:
    """Return a result that is no tensor and no plain value, as text."""
    own = type(value).__module__
    return "; ".join(f"{path}={each}" for path, each in state_of({"": value}, own).items())


def nesting(value: object) -> str:
    """Return the types of a result: `tuple(Tensor, dict(a=int))`."""
    name = type(value).__name__
    if isinstance(value, torch.Tensor):
        return f"{name} on {value.device}"
    if isinstance(value, dict):
        items = cast("dict[object, object]", value).items()
        return f"{name}({', '.join(f'{key}={nesting(each)}' for key, each in items)})"
    if isinstance(value, (list, tuple)):
        return f"{name}({', '.join(nesting(each) for each in cast('Sequence[object]', value))})"
    return name


def aliases(named: Mapping[str, torch.Tensor]) -> Iterator[str]:
    """Yield `out0=in1` for each result that is another tensor, `out0~in1` for shared memory."""
    for (name, value), (other, known) in combinations(named.items(), 2):
        if not name.startswith("out"):
            return
        if value is known:
            yield f"{name}={other}"
        elif memory_of(value) is not None and memory_of(value) == memory_of(known):
            yield f"{name}~{other}"


def memory_of(tensor: torch.Tensor) -> tuple[torch.device, int] | None:
    """Return where the memory of a tensor begins, if it has any of its own."""
    if type(tensor) not in PLAIN_CLASSES:
        return None
    if tensor.layout is not torch.strided or tensor.device.type == "meta" or not tensor.numel():
        return None
    return tensor.device, tensor.untyped_storage().data_ptr()


def propagate(outputs: Sequence[object]) -> None:
    """Run the backward pass from all outputs that have one."""
    reached = [(i, each) for i, each in tensors_of(outputs) if each.requires_grad]
    if reached:
        roots = [each for _, each in reached]
        torch.autograd.backward(roots, [tangent(i, each) for i, each in reached])


def gradients_of(
    arguments: Sequence[object], held: Mapping[str, torch.Tensor]
) -> dict[str, object]:
    """Return the gradients that stand in leaves."""
    named = {f"in{i}": each for i, each in tensors_of(arguments)} | dict(held)
    return {
        f"grad_{name}": clone_value(each.grad)
        for name, each in named.items()
        if each.is_leaf and each.grad is not None
    }


def said_error(error: BaseException) -> tuple[str, str, bool]:
    """Return an exception as `repro_templates/exceptions.py` reads it: the fields of `Raised`."""
    said = raised(error)
    return said.name, said.message, said.is_check


def tensors_of(values: Sequence[object]) -> Iterator[tuple[int, torch.Tensor]]:
    """Yield the tensors among some values, with their places."""
    yield from ((i, each) for i, each in enumerate(values) if isinstance(each, torch.Tensor))


def held_by(model: Any) -> dict[str, torch.Tensor]:
    """Return the parameters and buffers of a model by name."""
    if not isinstance(model, torch.nn.Module):
        return {}
    return {
        **dict(model.named_parameters(remove_duplicate=False)),
        **dict(model.named_buffers(remove_duplicate=False)),
    }


def arguments_of(given: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return positional and keyword arguments, as `inputs()` may give them, or both in a pair."""
    if isinstance(given, tuple) and len(given) == 2:
        args, kwargs = cast("tuple[Any, Any]", given)
        if isinstance(args, tuple) and isinstance(kwargs, dict):
            return args, cast("dict[str, Any]", kwargs)
    if isinstance(given, dict):
        return (), given
    return (given, {}) if isinstance(given, tuple) else ((given,), {})


def widest(value: Any, how: How) -> Any:
    """Return a value in float64 when that is wanted."""
    if not how["wide"]:
        return value
    if isinstance(value, torch.nn.Module):
        for each in vars(value).values():  # one that hides a registered module of its name
            if isinstance(each, torch.nn.Module):
                each.double()
        return value.double()
    if isinstance(value, dict):
        table = cast("dict[Any, Any]", value)
        return {key: widest(each, how) for key, each in table.items()}
    if isinstance(value, (list, tuple)) and not hasattr(value, "_fields"):
        made = [widest(each, how) for each in cast("Sequence[Any]", value)]
        return made if isinstance(value, list) else tuple(made)
    if not isinstance(value, torch.Tensor) or not value.is_floating_point() or not value.is_leaf:
        return value
    return value.detach().double().requires_grad_(value.requires_grad)
