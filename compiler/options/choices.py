"""The words that options and variables may take, for config, variables and commands."""

from dataclasses import dataclass
from typing import ClassVar, Literal

OnFailure = Literal["raise", "fallback", "warn"]
OnWatchedFailure = Literal["raise", "fallback", "warn", "record"]
"""`record`: the program runs as without ctk, and the failure is only recorded."""
PassSlot = Literal[
    "before_pre_grad",
    "before_joint",
    "before_post_grad",
    "pre_grad",
    "joint",
    "post_grad",
    "forward",
    "backward",
    "frozen",
]
"""Slots of a user's passes: after the stage's own, or before them. `post_grad` means forward and
backward."""

Check = Literal["off", "output", "pass"]
InputsMode = Literal["recipe", "full", "none"]
ExecutorName = Literal["local", "ray"]
"""Where parallel questions run: on this machine, or on a Ray cluster."""
SameRule = Literal["strict", "type", "any"]
"""Failures that count as the same: equal in words, kind and exception type; in kind and exception
type; or any. Without a rule: in kind, exception type and raising place."""

WatchedInputs = Literal["recipe", "full", "none", "failing"]
"""Values that the cases of a watched program keep: those of `InputsMode`, or `failing`: a recipe,
but the values of a failing call if its recipe does not show the failure."""


@dataclass(frozen=True, slots=True)
class Options:
    """Base class of options of a part of the pipeline that is not a pass.

    They are set like those of passes, `Config(passes={"partition": {"memory_budget": 0.5}})`.
    """

    name: ClassVar[str]
