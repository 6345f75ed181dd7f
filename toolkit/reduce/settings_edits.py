"""Edits of the settings around a graph: options and passes of the target, ambient modes."""

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ctk.compiler.errors import ConfigError
from ctk.toolkit.case.case import Case, Modes
from ctk.toolkit.reduce.analysis import Facts
from ctk.toolkit.reduce.edits import listing
from ctk.toolkit.targets import target_of


@dataclass(frozen=True, slots=True)
class DropOptions:
    """Leave options of the target at their defaults, by name."""

    names: tuple[str, ...]

    def says(self) -> str:
        return f"without the option {listing(self.names)}"

    def apply(self, case: Case, facts: Facts) -> Case | None:
        config = {key: value for key, value in case.config.items() if key not in self.names}
        try:
            if "disable" in config:
                config["disable"] = _keep_known(case.target, config)
            target_of(case.target).passes(config)
        except ConfigError:  # it holds options of a pass that a dropped option brought
            return None
        return dataclasses.replace(case, config=config)


@dataclass(frozen=True, slots=True)
class LeaveOutPasses:
    """Leave passes out, as `stage/name`; the shorter form of `disable` is chosen."""

    names: tuple[str, ...]

    def says(self) -> str:
        return f"without the pass {listing(self.names)}"

    def apply(self, case: Case, facts: Facts) -> Case | None:
        running = target_of(case.target).passes(case.config)
        kept = [name for name in running if name not in self.names]
        if len(kept) == len(running):
            return None
        before = _words(case.config.get("disable", ()))
        left_out = [*before, *self.names]
        others = ["*", *(f"-{name}" for name in kept)]
        config = {**case.config, "disable": min(left_out, others, key=len)}
        return dataclasses.replace(case, config=config)


def _keep_known(target: str, config: Mapping[str, object]) -> list[str]:
    """Return `disable` without passes that only a dropped option brought."""
    without = {key: value for key, value in config.items() if key != "disable"}
    passes = target_of(target).passes(without)
    names = {name for each in passes for name in (each, each.partition("/")[2])}
    words = _words(config["disable"])
    return [word for word in words if word == "*" or word.removeprefix("-") in names]


def _words(value: object) -> Sequence[str]:
    return [str(each) for each in value] if isinstance(value, list | tuple) else [str(value)]


@dataclass(frozen=True, slots=True)
class DefaultModes:
    """Run in torch's default modes, by the names of fields of `Modes`."""

    names: tuple[str, ...]

    def says(self) -> str:
        return f"without the mode {listing(self.names)}"

    def apply(self, case: Case, facts: Facts) -> Case | None:
        default = Modes()
        modes = dataclasses.replace(case.modes, **{n: getattr(default, n) for n in self.names})
        return dataclasses.replace(case, modes=modes)


AMBIENT = (
    "backward", "inference", "autocast", "deterministic", "seed", "default_dtype",
    "default_device", "settings", "grad",
)  # fmt: skip
"""The modes around a program, except the comparison of strides."""


def unusual_modes(modes: Modes) -> tuple[str, ...]:
    """Return the ambient modes that differ from torch's defaults."""
    default = Modes()
    return tuple(name for name in AMBIENT if getattr(modes, name) != getattr(default, name))
