"""Healthy programs of hard kinds: eager and every compiler agree, and no tool may say otherwise."""

import dataclasses

from tests.helpers.healthy import (
    composed,
    control_flow,
    dtypes,
    dynamic,
    layers,
    libraries,
    memory,
    operators,
    programs,
    random_draws,
    stateful,
    training,
    transforms,
    writes,
)
from tests.helpers.healthy.base import Healthy

_MORE: tuple[Healthy, ...] = (
    *stateful.PROGRAMS,
    *operators.PROGRAMS,
    *composed.PROGRAMS,
    *memory.PROGRAMS,
    *libraries.PROGRAMS,
)

BOTH = (("ctk", "cuda"), ("inductor", "cuda"))
TORCHS_OWN_ON_CUDA = {
    "inference_mode": BOTH,  # autograd dispatch raises: so does aot_eager
    "quantiles": BOTH,  # Dynamo's fake quantile asks for the size of a symbolic tensor
    "bernoulli_mask": (("inductor", "cuda"),),  # draws other numbers, with `fallback_random` too
}
"""What torch 2.11 does otherwise than eager on a GPU, without us too; seen on an H200."""

_ALL: tuple[Healthy, ...] = (
    *transforms.PROGRAMS,
    *control_flow.PROGRAMS,
    *dtypes.PROGRAMS,
    *layers.PROGRAMS,
    *training.PROGRAMS,
    *random_draws.PROGRAMS,
    *writes.PROGRAMS,
    *dynamic.PROGRAMS,
    *programs.PROGRAMS,
    *_MORE,
)


def _with_torchs_own(programs: tuple[Healthy, ...]) -> tuple[Healthy, ...]:
    return tuple(
        dataclasses.replace(each, bugs=(*each.bugs, *TORCHS_OWN_ON_CUDA.get(each.name, ())))
        for each in programs
    )


HEALTHY = _with_torchs_own(_ALL)
"""All of them, by kind."""

MORE = _with_torchs_own(_MORE)
"""Those of them that are more of the same kinds, for the slow suite."""
