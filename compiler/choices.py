"""The words that options and variables may take, for config, variables and commands."""

from typing import Literal

OnFailure = Literal["raise", "fallback", "warn"]
PassSlot = Literal[
    "before_pre_grad", "pre_grad", "before_joint", "joint", "before_post_grad", "post_grad",
    "forward", "backward", "frozen",
]  # fmt: skip
"""Where a user's passes run: after the stage's own, or before them. `post_grad` means forward and
backward."""

Check = Literal["off", "output", "pass"]
InputsMode = Literal["recipe", "full", "none"]
