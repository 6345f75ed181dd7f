"""Values that each step reads twice: the paths through them double with every step."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

STEPS = 24

MAPS: dict[str, Callable[[Tensor], Tensor]] = {
    "a product": lambda y: 1.2 * y * (1 - y),
    "a function": lambda y: y.tanh() * 0.5 + y * 0.5,
    "a choice": lambda y: torch.where(y > 0, y * 0.9, y + 0.1),
}
ENDS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "rows": lambda y, x: (y * x).sum(-1),
    "rows twice": lambda y, x: y.softmax(-1) + x,
    "columns": lambda y, x: (y * x).sum(0),
    "elements": lambda y, x: y + x,
}


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("name", MAPS)
def test_a_value_is_looked_at_once(name: str, end: str) -> None:
    def program(x: Tensor) -> tuple[Tensor, Tensor]:
        y = x
        for _ in range(STEPS):
            y = MAPS[name](y)
        return y, ENDS[end](y, x)

    x = torch.rand(7, 33, generator=torch.Generator().manual_seed(0))
    compiled = torch.compile(program, backend="ctk", options={"codegen": "c", "cache": False})
    torch.testing.assert_close(compiled(x), program(x))
