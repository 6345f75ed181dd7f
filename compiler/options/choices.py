"""The words that options and variables may take, for config, variables and commands."""

from dataclasses import dataclass
from typing import ClassVar, Literal

OnFailure = Literal["raise", "fallback", "warn"]
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
"""Where a user's passes run: after the stage's own, or before them. `post_grad` means forward and
backward."""

Check = Literal["off", "output", "pass"]
InputsMode = Literal["recipe", "full", "none"]
ExecutorName = Literal["local", "ray"]
"""Where several questions run at once: on this machine, or on those of a Ray cluster."""
SameRule = Literal["strict", "type", "any"]
"""What makes two failures the same: their words, too; kind and exception type alone; any failure.
Without any of these: kind, exception type and raising place.
"""


@dataclass(frozen=True, slots=True)
class Options:
    """What the options of a part of the pipeline that is no pass derive from.

    They are set like those of passes, `Config(passes={"partition": {"memory_budget": 0.5}})`.
    """

    name: ClassVar[str]
