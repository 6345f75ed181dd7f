"""Select the passes of a compile: the built-in ones, the user's around them, with their options."""

import logging
from collections.abc import Mapping, Sequence
from functools import cache
from typing import TypeVar

from ctk.compiler.errors import UnknownPass, nearest
from ctk.compiler.observe import Stage
from ctk.compiler.options.choices import Options, PassSlot
from ctk.compiler.options.config import Config, leaves_out
from ctk.compiler.options.environment import read_environment
from ctk.compiler.options.inductor_options import nearest_option
from ctk.compiler.partition.options import PartitionOptions
from ctk.compiler.rewriting.base import Pass
from ctk.compiler.rewriting.options import option_types, set_options
from ctk.compiler.rewriting.user_passes import FunctionPass, resolve_pass

log = logging.getLogger("ctk.pipeline")
Step = Pass | FunctionPass
AnyStep = TypeVar("AnyStep", bound="Step | Options")

PARTITION = PartitionOptions()

SLOTS: Mapping[Stage, tuple[PassSlot, ...]] = {
    "pre_grad": ("pre_grad",),
    "joint": ("joint",),
    "forward": ("post_grad", "forward"),
    "backward": ("post_grad", "backward"),
    "frozen": ("frozen",),
}
"""Slots of the user's passes behind the built-in ones, by stage."""

SLOTS_BEFORE: Mapping[Stage, tuple[PassSlot, ...]] = {
    "pre_grad": ("before_pre_grad",),
    "joint": ("before_joint",),
    "forward": ("before_post_grad",),
    "backward": ("before_post_grad",),
}
"""Slots of the user's passes in front of the built-in ones, by stage."""


ON_PROGRAMS = ("lower", "fuse", "plan_memory")
"""Passes of the stage `lowered` over programs of the loop IR instead of graphs."""


def select_passes(
    tables: Mapping[Stage, Sequence[Pass]], config: Config, more: Sequence[Options] = ()
) -> dict[Stage, tuple[Step, ...]]:
    """Return the passes of each stage in their order.

    Args:
        more: Options of the stage `lowered` that do not belong to a pass.

    Raises:
        UnknownPass: A pass that is disabled, or that has options, does not exist.
        ConfigError: A pass of the user cannot be found, or it has no such option, or the value is
            not allowed.
    """
    passes: dict[Stage, tuple[Step, ...]] = {
        stage: (
            *_users(SLOTS_BEFORE.get(stage, ()), config),
            *table,
            *_users(SLOTS[stage], config),
        )
        for stage, table in tables.items()
    }
    everything: list[tuple[Stage, Step | Options]] = [
        (stage, step) for stage, steps in passes.items() for step in steps
    ]
    everything.append(("joint", PARTITION))
    everything.extend(("lowered", options) for options in more)
    known = {name for stage, step in everything for name in _names(stage, step)}
    for options in more:
        _with_options("lowered", options, config)
    _require_known(config, known, [step for _, step in everything])
    partition_options(config)
    _refuse_unknown(config, known | {n for name in ON_PROGRAMS for n in (name, f"lowered/{name}")})
    return {
        stage: tuple(_with_options(stage, step, config) for step in steps)
        for stage, steps in passes.items()
    }


def running_passes(
    tables: Mapping[Stage, Sequence[Pass]], config: Config, more: Sequence[Options] = ()
) -> tuple[str, ...]:
    """Return the passes that `Config.disable` does not name, each once, as `stage/name`, in order.

    Args:
        more: As for `select_passes`.

    Raises:
        ConfigError: As `select_passes`.
    """
    selected = select_passes(tables, config, more)
    every = [_names(stage, step) for stage, steps in selected.items() for step in steps]
    every += [(name, f"lowered/{name}") for name in ON_PROGRAMS]
    kept = (names[1] for names in every if not leaves_out(config.disable, names))
    return tuple(dict.fromkeys(kept))


def partition_options(config: Config) -> PartitionOptions:
    """Return the options of `joint/partition`, which is not a pass: it makes two graphs of one.

    Raises:
        ConfigError: As `select_passes`.
    """
    return _with_options("joint", PARTITION, config)


def _users(slots: Sequence[PassSlot], config: Config) -> list[Step]:
    entries = [entry for slot in slots for entry in config.custom_passes.get(slot, ())]
    return [resolve_pass(entry) for entry in entries]


def _names(stage: str, step: Step | Options) -> tuple[str, str]:
    """Return the user's names of a pass: for every stage, and for one."""
    return step.name, f"{stage}/{step.name}"


def _with_options(stage: Stage, step: AnyStep, config: Config) -> AnyStep:
    """Return a pass with its options; options for one stage override options for every stage."""
    for name in _names(stage, step):
        step = set_options(step, name, config.passes.get(name, {}))
    return step


def _require_known(config: Config, known: set[str], steps: Sequence[Step | Options]) -> None:
    """Raise if an option belongs to a pass that does not exist."""
    for name, options in config.passes.items():
        if name not in known:
            having = sorted({step.name for step in steps if option_types(step)})
            hint = _nearest_pass(name, known)
            for option in () if hint else options:
                hint = hint or nearest_option(f"{name}.{option}", ())
            raise UnknownPass(
                f"options of an unknown pass {name!r}{hint}; "
                f"passes with options: {', '.join(having)}"
            )


def _refuse_unknown(config: Config, known: set[str]) -> None:
    """Raise if `disable` names a pass that does not exist, because the name would be ignored.

    A name in `CTK_DISABLE` may belong to another compile of the process, so it is only logged.
    """
    elsewhere = read_environment().disable
    for entry in config.disable:
        name = entry.removeprefix("-")
        if name == "*" or name.partition("#")[0] in known:
            continue
        hint = _nearest_pass(name, known)
        if entry not in elsewhere:
            raise UnknownPass(f"disable names {name!r}, which is not a pass{hint}")
        _warn_once(f"ctk: CTK_DISABLE names {name!r}, which is not a pass of this compile{hint}")


def _nearest_pass(name: str, known: set[str]) -> str:
    """Return the nearest pass as a hint; a shared stage alone makes no two passes alike."""
    return nearest(name, known, cutoff=0.8 if "/" in name else 0.6)


@cache
def _warn_once(text: str) -> None:
    """Log a warning at the first of the compiles with these options."""
    log.warning("%s", text)
