"""Run a program once: under recorded modes, seeded, its results and gradients read at once.

Results are named `out0` (leaves of the output), `in0` (tensor inputs after the run, numbered by
position), `held_NAME` (tensors that the program holds, after the run) and, with the mode
`backward`, `grad_in0` (gradients of the inputs that require one; None when there is none).
"""

import contextlib
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import AbstractContextManager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import Tensor

from ctk.compiler.fx.clone import clone_value
from ctk.compiler.fx.tensor_parts import PLAIN_CLASSES
from ctk.compiler.torch_compat.process.process_state import outside_dispatch_modes
from ctk.repro_templates.graph.settings import default_device, default_dtype, settings
from ctk.repro_templates.numbers.layout import NO_LAYOUT, Layout, layout_of

Modes = Mapping[str, Any]
"""The fields of a case's `Modes`, by name."""

State = Callable[[Modes], AbstractContextManager[None]]
"""Sets one kind of global state as in the modes."""


_IN_BACKWARD = ContextVar("_IN_BACKWARD", default=False)
"""Whether autocast is on in backward as well."""


@dataclass(frozen=True, slots=True, eq=False)
class Run:
    """The results of one run.

    Attributes:
        values: The results by name, in the order outputs, inputs, held tensors, gradients.
        layout: Strides, shared memory and `requires_grad` of the results.
        allocated: The operators that allocated fresh memory, if it was filled.
        is_seeded: Whether all were seeded before; false when the call was the first to use CUDA.
    """

    values: Mapping[str, object]
    generators: tuple[Tensor, ...]
    drew_random: bool
    is_seeded: bool = True
    layout: Layout = NO_LAYOUT
    allocated: tuple[str, ...] = ()


def run_once(
    call: Callable[..., object],
    inputs: Sequence[object],
    modes: Modes,
    states: Sequence[State],
    around: AbstractContextManager[None] | None = None,
    *,
    held: Mapping[str, Tensor] | None = None,
) -> Run:
    """Seed the generators, call once and read everything; to be run `under` the modes.

    Args:
        call: The program, taking flat inputs.
        inputs: Its own to change.
        around: Entered for the call and the gradients.
        held: Tensors that the program reaches besides its inputs, to read them after the call: an
            optimizer step returns nothing and writes into its parameters.
    """
    seed_generators(modes["seed"])
    before = generator_states()
    with around or contextlib.nullcontext():
        values, layout = results(call, inputs, modes, states, held or {})
        if torch.cuda.is_initialized():
            torch.cuda.synchronize()  # an error of a kernel is raised now, not in a later call
    after = generator_states()
    drew = any(not torch.equal(a, b) for a, b in zip(before, after, strict=False))
    return Run(values, after, drew, len(after) == len(before), layout)


def results(
    call: Callable[..., object],
    inputs: Sequence[object],
    modes: Modes,
    states: Sequence[State],
    held: Mapping[str, Tensor],
) -> tuple[dict[str, object], Layout]:
    """Call once and read everything; outputs are cloned at once: they may alias inputs, buffers."""
    outputs = leaves(call(*inputs))
    tensors = {f"in{i}": x for i, x in enumerate(inputs) if isinstance(x, Tensor)}
    reached = tensors | {f"held_{name}": tensor for name, tensor in held.items()}
    layout = layout_of({f"out{i}": leaf for i, leaf in enumerate(outputs)}, reached)
    values = {f"out{i}": clone_value(leaf) for i, leaf in enumerate(outputs)}
    values |= {name: tensor.detach() for name, tensor in tensors.items()}
    values |= {f"held_{name}": clone_value(tensor) for name, tensor in held.items()}
    if modes["backward"]:
        # Users call backward() outside of autocast.
        regions = modes["autocast"] if _IN_BACKWARD.get() else ()
        with enter_states(states, {**modes, "autocast": regions}):
            values |= gradients(outputs, tensors)
    return values, layout


@contextlib.contextmanager
def autocast_in_backward() -> Generator[None, None, None]:
    """Run the backward of runs inside under the autocast of their forward."""
    token = _IN_BACKWARD.set(True)
    try:
        yield
    finally:
        _IN_BACKWARD.reset(token)


def leaves(value: object) -> list[object]:
    """Return the values in nested tuples, lists and mappings, in order."""
    if isinstance(value, Mapping):
        value = list(cast("Mapping[object, object]", value).values())
    if not isinstance(value, (tuple, list)):
        return [value]
    return [leaf for item in cast("Sequence[object]", value) for leaf in leaves(item)]


def gradients(outputs: Sequence[object], inputs: Mapping[str, Tensor]) -> dict[str, object]:
    """Return the gradients of the inputs that require one, as `grad_NAME`."""
    wanted = {name: tensor for name, tensor in inputs.items() if tensor.requires_grad}
    reached = [
        (i, leaf)
        for i, leaf in enumerate(outputs)
        if isinstance(leaf, Tensor) and leaf.requires_grad
    ]
    if not wanted or not reached:
        return {f"grad_{name}": None for name in wanted}
    found = torch.autograd.grad(
        [leaf for _, leaf in reached],
        list(wanted.values()),
        [tangent(index, leaf) for index, leaf in reached],
        allow_unused=True,
    )
    return {f"grad_{name}": clone_value(g) for name, g in zip(wanted, found, strict=True)}


def tangent(index: int, output: Tensor) -> Tensor:
    """Return the tangent of output number `index`, exactly the same numbers in each dtype.

    1. A scalar gets 1, as from `loss.backward()`; so does a tensor of a class of its own.
    2. Another shape gets seeded randn, and 1 in a random half of its elements: the gradient of a
       sum is 1, and backward graphs that round or compare are often wrong at such numbers only.

    Drawn in float32 and rounded to bfloat16, which float16, float32 and float64 represent:
    otherwise eager in a small dtype would start from other tangents than its reference does.
    """
    with outside_dispatch_modes():  # the same numbers under other roundings of operators
        return _drawn_tangent(index, output)


def _drawn_tangent(index: int, output: Tensor) -> Tensor:
    generator = torch.Generator("cpu").manual_seed(index)
    if output.dim() == 0 or type(output) not in PLAIN_CLASSES:
        return torch.ones_like(output)
    shape = (3, *output.shape)
    draws = torch.randn(shape, generator=generator, dtype=torch.float32, device="cpu")
    real, imaginary, coin = draws.to(torch.bfloat16).to(torch.float64)
    real = torch.where(coin > 0, 1.0, real)
    value = torch.complex(real, imaginary) if output.is_complex() else real
    return value.to(device=output.device, dtype=output.dtype)


@contextlib.contextmanager
def under(modes: Modes, states: Sequence[State]) -> Generator[None, None, None]:
    """Run the body under `modes`, seeded; restore everything afterwards, generators included.

    Args:
        states: `STATES`, or in a repro only the states that differ from a fresh process.
    """
    with contextlib.ExitStack() as stack:
        # Inference mode is switched off as well: a graph captured outside of it may be run inside.
        # Entered needlessly, it would also let autograd use its threads again, and a process with
        # threads cannot be forked (watch/process_fork.py).
        if torch.is_inference_mode_enabled() != modes["inference"]:
            stack.enter_context(torch.inference_mode(modes["inference"]))
        stack.enter_context(torch.set_grad_enabled(modes["grad"] and not modes["inference"]))
        stack.enter_context(default_dtype(getattr(torch, modes["default_dtype"])))
        stack.enter_context(enter_states(states, modes))
        stack.enter_context(generators_kept())
        seed_generators(modes["seed"])
        yield


def in_float64(modes: Modes) -> Modes:
    """Return the modes of a float64 reference: no autocast, and new floats are float64."""
    return {**modes, "autocast": (), "default_dtype": "float64"}


@contextlib.contextmanager
def enter_states(states: Sequence[State], modes: Modes) -> Generator[None, None, None]:
    """Run the body with each of the states set."""
    with contextlib.ExitStack() as stack:
        for state in states:
            stack.enter_context(state(modes))
        yield


def seed_generators(seed: int) -> None:
    """Seed torch's generators as `torch.manual_seed` does.

    Without CUDA in use only the CPU generator is seeded: `manual_seed` would queue the call for
    later, with a formatted stack trace, and the reducer runs thousands of times.
    """
    if torch.cuda.is_initialized():
        torch.manual_seed(seed)
    else:
        torch.default_generator.manual_seed(seed)


def generator_states() -> tuple[Tensor, ...]:
    """Return the states of torch's generators: CPU first, then each CUDA device in use."""
    count = torch.cuda.device_count() if torch.cuda.is_initialized() else 0
    return (torch.get_rng_state(), *map(torch.cuda.get_rng_state, range(count)))


def set_generator_states(states: Sequence[Tensor]) -> None:
    """Set torch's generators to a reading of `generator_states`."""
    torch.set_rng_state(states[0])
    for index, state in enumerate(states[1:]):
        torch.cuda.set_rng_state(state, index)


def same_states(a: Sequence[Tensor], b: Sequence[Tensor]) -> bool:
    """Return whether two readings of `generator_states` are equal."""
    return len(a) == len(b) and all(torch.equal(x, y) for x, y in zip(a, b, strict=True))


def device_types() -> list[str]:
    """Return the types of the devices that this machine has."""
    return ["cpu", "cuda"] if torch.cuda.is_available() else ["cpu"]


@contextlib.contextmanager
def generators_kept() -> Generator[None, None, None]:
    """Restore the default generators afterwards."""
    states = generator_states()
    try:
        yield
    finally:
        with contextlib.suppress(RuntimeError):  # a kernel has broken CUDA: its own error is raised
            set_generator_states(states)


@contextlib.contextmanager
def autocast(modes: Modes) -> Generator[None, None, None]:
    """Enter exactly the regions of the modes, with autocast off on every other device type.

    Regions that a graph entered and, because it raised, never left are undone as well. Within a
    region of the caller the casts that torch has cached are the caller's: without them it would
    cast a weight again, and add up gradients in another order.
    """
    wanted = {region["device_type"]: region for region in modes["autocast"]}
    devices = list(dict.fromkeys([*device_types(), *wanted]))
    before = {
        device: (torch.is_autocast_enabled(device), torch.get_autocast_dtype(device))
        for device in devices
    }
    cache_before, regions = torch.is_autocast_cache_enabled(), _open_regions()
    try:
        for device in devices:
            torch.set_autocast_enabled(device, device in wanted)
        for device, region in wanted.items():
            torch.set_autocast_dtype(device, getattr(torch, region["dtype"]))
            torch.set_autocast_cache_enabled(region["cache_enabled"])
        yield
    finally:
        for device, (enabled, dtype) in before.items():
            torch.set_autocast_enabled(device, enabled)
            torch.set_autocast_dtype(device, dtype)
        torch.set_autocast_cache_enabled(cache_before)
        while _open_regions() > regions:
            torch.autocast_decrement_nesting()
        if not regions:
            torch.clear_autocast_cache()


def _open_regions() -> int:
    """Return how many autocast regions are open; torch clears its cache when the last one ends."""
    count = torch.autocast_increment_nesting()
    torch.autocast_decrement_nesting()
    return count - 1


@contextlib.contextmanager
def deterministic(modes: Modes) -> Generator[None, None, None]:
    """Use deterministic algorithms, or not, as in the modes."""
    enabled = modes["deterministic"]
    before = torch.are_deterministic_algorithms_enabled()
    warn_only = torch.is_deterministic_algorithms_warn_only_enabled()
    if before != enabled or warn_only:
        torch.use_deterministic_algorithms(enabled)
    try:
        yield
    finally:  # a graph may have set it as well
        if (before, warn_only) != (
            torch.are_deterministic_algorithms_enabled(),
            torch.is_deterministic_algorithms_warn_only_enabled(),
        ):
            torch.use_deterministic_algorithms(before, warn_only=warn_only)


STATES: Sequence[State] = (default_device, settings, deterministic, autocast)
