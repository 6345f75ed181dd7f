"""Healthy programs of hard kinds: eager and every compiler agree, and no tool may say otherwise."""

from tests.helpers.healthy import (
    control_flow,
    dtypes,
    dynamic,
    layers,
    programs,
    random_draws,
    training,
    transforms,
    writes,
)
from tests.helpers.healthy.base import Healthy

HEALTHY: tuple[Healthy, ...] = (
    *transforms.PROGRAMS,
    *control_flow.PROGRAMS,
    *dtypes.PROGRAMS,
    *layers.PROGRAMS,
    *training.PROGRAMS,
    *random_draws.PROGRAMS,
    *writes.PROGRAMS,
    *dynamic.PROGRAMS,
    *programs.PROGRAMS,
)
"""All of them, by kind."""
