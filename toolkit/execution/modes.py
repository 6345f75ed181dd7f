"""The ambient state of torch around a run: read it into `Modes`, apply it, restore it."""

import dataclasses
from collections.abc import Generator, Mapping
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from typing import Any

import torch

from ctk.repro_templates.graph.running import STATES, device_types, in_float64, under
from ctk.repro_templates.graph.settings import current_settings
from ctk.toolkit.case.case import Autocast, Modes

_KEEPS_DEFAULT_DTYPE: ContextVar[bool] = ContextVar("_KEEPS_DEFAULT_DTYPE", default=False)
"""Set while runs of this thread must not change the default dtype of the process."""


def current_modes(*, seed: int = 0, backward: bool = False) -> Modes:
    """Return the modes that are active now."""
    return Modes(
        grad=torch.is_grad_enabled(),
        inference=torch.is_inference_mode_enabled(),
        backward=backward,
        autocast=_active_autocast(),
        deterministic=torch.are_deterministic_algorithms_enabled(),
        seed=seed,
        default_dtype=str(torch.get_default_dtype()).removeprefix("torch."),
        default_device=_default_device(),
        settings=current_settings(),
    )


def apply_modes(modes: Modes) -> AbstractContextManager[None]:
    """Run the body under `modes`, seeded; restore everything afterwards, generators included."""
    return under(dataclasses.asdict(modes), STATES)


@contextmanager
def keep_default_dtype() -> Generator[None]:
    """Keep the default dtype, which all threads share, in float64 references inside the block.

    A graph that mixes floats created from nothing or from integers with other floats then has no
    float64 reference.
    """
    token = _KEEPS_DEFAULT_DTYPE.set(True)
    try:
        yield
    finally:
        _KEEPS_DEFAULT_DTYPE.reset(token)


def reference_state(state: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the state of a float64 reference, for the modes of a program as a dict."""
    kept = ("default_dtype",) if _KEEPS_DEFAULT_DTYPE.get() else ()
    return {**in_float64(state), **{name: state[name] for name in kept}}


def _default_device() -> str:
    device = torch.get_default_device()
    return "" if device.type == "cpu" else str(device)


def _active_autocast() -> tuple[Autocast, ...]:
    cache = torch.is_autocast_cache_enabled()
    return tuple(
        Autocast(device, str(torch.get_autocast_dtype(device)).removeprefix("torch."), cache)
        for device in device_types()
        if torch.is_autocast_enabled(device)
    )
