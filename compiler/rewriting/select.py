"""Which passes a compile runs: the stage's own, then the user's, as its `Config` says."""

import logging
from collections.abc import Mapping, Sequence

from ctk.compiler.choices import PassSlot
from ctk.compiler.config import Config
from ctk.compiler.errors import nearest
from ctk.compiler.observe import Stage
from ctk.compiler.rewriting.base import Pass
from ctk.compiler.rewriting.user_passes import OpaquePass, resolve_pass

log = logging.getLogger("ctk.pipeline")
Step = Pass | OpaquePass

SLOTS: Mapping[Stage, tuple[PassSlot, ...]] = {
    "pre_grad": ("pre_grad",),
    "joint": ("joint",),
    "forward": ("post_grad", "forward"),
    "backward": ("post_grad", "backward"),
    "frozen": ("frozen",),
}
"""Where the user's passes run, by stage."""


def select_passes(
    tables: Mapping[Stage, Sequence[Pass]], config: Config
) -> dict[Stage, tuple[Step, ...]]:
    """Return the passes of each stage in the order in which they run.

    Args:
        tables: Our own passes by stage.
        config: Options of the compile: which passes the user adds.

    Raises:
        ConfigError: A pass of the user cannot be found.
    """
    passes: dict[Stage, tuple[Step, ...]] = {
        stage: (*table, *_users(stage, config)) for stage, table in tables.items()
    }
    _warn_of_unknown(config, passes)
    return passes


def _users(stage: Stage, config: Config) -> list[Step]:
    entries = [entry for slot in SLOTS[stage] for entry in config.custom_passes.get(slot, ())]
    return [resolve_pass(entry) for entry in entries]


def _warn_of_unknown(config: Config, passes: Mapping[Stage, Sequence[Step]]) -> None:
    """Say so when `disable` names a pass that does not exist: it would be ignored."""
    known = {name for steps in passes.values() for name in (step.name for step in steps)}
    known |= {f"{stage}/{step.name}" for stage, steps in passes.items() for step in steps}
    for name in config.disable:
        if name.partition("#")[0] not in known:
            log.warning("ctk: disable=%r names no pass%s", name, nearest(name, known))
