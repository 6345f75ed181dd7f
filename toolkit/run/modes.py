"""The ambient state of torch around a run: read it into `Modes`, put it on, restore what was there.

What it does not do: it knows nothing of cases or graphs, and sets no environment variable.
"""

import dataclasses
from contextlib import AbstractContextManager

import torch

from ctk.repro_templates.running import STATES, device_types, under
from ctk.toolkit.case.case import Autocast, Modes


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


def applied(modes: Modes) -> AbstractContextManager[None]:
    """Run the body under `modes`, seeded; restore everything afterwards, generators included."""
    return under(dataclasses.asdict(modes), STATES)


def _active_autocast() -> tuple[Autocast, ...]:
    cache = torch.is_autocast_cache_enabled()
    return tuple(
        Autocast(device, str(torch.get_autocast_dtype(device)).removeprefix("torch."), cache)
        for device in device_types()
        if torch.is_autocast_enabled(device)
    )
