"""The ambient state of torch around a run: read it into `Modes`, put it on, restore what was there.

What it does not do: it knows nothing of cases or graphs, and sets no environment variable.
"""

import contextlib
from collections.abc import Generator

import torch

from ctk.toolkit.case.case import Autocast, Modes


def dtype_named(name: str) -> torch.dtype:
    """Return `torch.<name>`.

    Raises:
        ValueError: There is no such dtype.
    """
    dtype = getattr(torch, name, None)
    if not isinstance(dtype, torch.dtype):
        raise ValueError(f"{name!r} is no dtype of torch; expected a name such as 'float32'")
    return dtype


def current_modes(*, seed: int = 0, backward: bool = False) -> Modes:
    """Return the modes that hold now, for a graph captured here."""
    return Modes(
        grad=torch.is_grad_enabled(),
        inference=torch.is_inference_mode_enabled(),
        backward=backward,
        autocast=_active_autocast(),
        deterministic=torch.are_deterministic_algorithms_enabled(),
        seed=seed,
        default_dtype=str(torch.get_default_dtype()).removeprefix("torch."),
    )


@contextlib.contextmanager
def applied(modes: Modes) -> Generator[None, None, None]:
    """Run the body under `modes`, seeded; restore everything afterwards, generators included.

    Also undone: autocast regions that a graph entered and, because it raised, never left.
    """
    with contextlib.ExitStack() as stack:
        # Inference mode is switched off too: a graph captured outside of it may be run inside.
        stack.enter_context(torch.inference_mode(modes.inference))
        stack.enter_context(torch.set_grad_enabled(modes.grad and not modes.inference))
        stack.enter_context(_deterministic(modes.deterministic))
        stack.enter_context(_default_dtype(dtype_named(modes.default_dtype)))
        stack.enter_context(_autocast(modes.autocast))
        stack.enter_context(torch.random.fork_rng(devices=_cuda_devices()))
        seed_generators(modes.seed)
        yield


@contextlib.contextmanager
def without_autocast() -> Generator[None, None, None]:
    """Run the body outside of autocast: where a user calls `backward()`."""
    with _autocast(()):
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


def generator_state() -> tuple[torch.Tensor, ...]:
    """Return the states of torch's generators: CPU first, then each CUDA device in use."""
    return (torch.get_rng_state(), *(torch.cuda.get_rng_state(i) for i in _cuda_devices()))


def _cuda_devices() -> list[int]:
    return list(range(torch.cuda.device_count())) if torch.cuda.is_initialized() else []


def _device_types() -> list[str]:
    return ["cpu", "cuda"] if torch.cuda.is_available() else ["cpu"]


def _active_autocast() -> tuple[Autocast, ...]:
    cache = torch.is_autocast_cache_enabled()
    return tuple(
        Autocast(device, str(torch.get_autocast_dtype(device)).removeprefix("torch."), cache)
        for device in _device_types()
        if torch.is_autocast_enabled(device)
    )


@contextlib.contextmanager
def _autocast(regions: tuple[Autocast, ...]) -> Generator[None, None, None]:
    """Enter exactly `regions`, with autocast off on every other device type."""
    devices = list(dict.fromkeys([*_device_types(), *(region.device_type for region in regions)]))
    before = {
        device: (torch.is_autocast_enabled(device), torch.get_autocast_dtype(device))
        for device in devices
    }
    cache_before = torch.is_autocast_cache_enabled()
    try:
        for device in devices:
            torch.set_autocast_enabled(device, False)
        for region in regions:
            torch.set_autocast_enabled(region.device_type, True)
            torch.set_autocast_dtype(region.device_type, dtype_named(region.dtype))
            torch.set_autocast_cache_enabled(region.cache_enabled)
        yield
    finally:
        for device, (enabled, dtype) in before.items():
            torch.set_autocast_enabled(device, enabled)
            torch.set_autocast_dtype(device, dtype)
        torch.set_autocast_cache_enabled(cache_before)
        torch.clear_autocast_cache()


@contextlib.contextmanager
def _deterministic(enabled: bool) -> Generator[None, None, None]:
    before = torch.are_deterministic_algorithms_enabled()
    warn_only = torch.is_deterministic_algorithms_warn_only_enabled()
    if before == enabled and not warn_only:
        yield
        return
    torch.use_deterministic_algorithms(enabled)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(before, warn_only=warn_only)


@contextlib.contextmanager
def _default_dtype(dtype: torch.dtype) -> Generator[None, None, None]:
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        yield
    finally:
        torch.set_default_dtype(before)
