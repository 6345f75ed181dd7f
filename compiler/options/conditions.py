"""The conditions of `CTK_CHECK_WHEN`: results of a compiled call that are worth a comparison.

    conditions = condition ("," condition)*
    condition  = "nan" | "inf" | "loss" (">" | ">=") number
    number     = a finite decimal number: 10, 0.5, -1, 1e3

`nan`: a result has a NaN. `inf`: a result has an infinity. `loss>10`: the scalar result named
`loss` is above 10; if none has that name, the only scalar result. A NaN is above no number.
"""

import math
import re
from dataclasses import dataclass
from typing import Literal

GRAMMAR = "nan, inf, loss>NUMBER or loss>=NUMBER, or several with commas between: nan,inf,loss>10"

_ABOVE = re.compile(r"loss\s*(>=?)\s*([+-]?(?:\d+\.?\d*|\.\d+)(?:e[+-]?\d+)?)", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Condition:
    """A property of the results of a call.

    Attributes:
        bound: For `loss`: the number that it exceeds, or reaches with `or_equal`.
    """

    kind: Literal["nan", "inf", "loss"]
    bound: float = 0.0
    or_equal: bool = False

    def __str__(self) -> str:
        if self.kind != "loss":
            return self.kind
        return f"loss{'>=' if self.or_equal else '>'}{repr(self.bound).removesuffix('.0')}"

    def is_exceeded(self, loss: float) -> bool:
        """Return whether a loss is above the bound."""
        return loss >= self.bound if self.or_equal else loss > self.bound


def parse_conditions(text: str) -> tuple[Condition, ...]:
    """Return the conditions of a text, without repetitions; none of an empty one.

    Raises:
        ValueError: It is not of the grammar; the message is the allowed form.
    """
    words = text.split(",") if text.strip() else []
    return tuple(dict.fromkeys(_parse(word.strip().lower()) for word in words))


def _parse(word: str) -> Condition:
    if word == "nan" or word == "inf":
        return Condition(word)
    match = _ABOVE.fullmatch(word)
    if match is None or not math.isfinite(float(match[2])):
        raise ValueError(GRAMMAR)
    return Condition("loss", float(match[2]), match[1] == ">=")
