"""Healthy programs of hard kinds: eager and every compiler agree, and no tool may say otherwise."""

from tests.helpers.healthy import (
    composed,
    control_flow,
    dtypes,
    dynamic,
    layers,
    operators,
    programs,
    random_draws,
    stateful,
    training,
    transforms,
    writes,
)
from tests.helpers.healthy.base import Healthy

MORE: tuple[Healthy, ...] = (
    *stateful.PROGRAMS,
    *operators.PROGRAMS,
    *composed.PROGRAMS,
)
"""More of the same kinds, for the slow suite."""

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
    *MORE,
)
"""All of them, by kind."""
