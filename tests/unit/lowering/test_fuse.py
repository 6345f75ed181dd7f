"""Fusion: what is one kernel computes what the kernels computed before."""

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.fx.experimental.proxy_tensor import make_fx

from ctk.compiler.codegen.select import generate
from ctk.compiler.config import Config
from ctk.compiler.lowering.fuse import fuse
from ctk.compiler.lowering.interpret import run_program
from ctk.compiler.lowering.lower import lower
from ctk.compiler.rewriting.numbering import Numbering

SQUARE = torch.randn(40, 80, generator=torch.Generator().manual_seed(3))

CALLS: dict[str, Callable[[Tensor], Sequence[Tensor]]] = {
    "scan beside a sum": lambda x: (x.sum(1), x.cumsum(1)),
    "sum beside a scan": lambda x: (x.cumsum(1), x.amax(1), x.softmax(1)),
    "scan of what is walked crosswise": lambda x: (x.t().sum(), x.flatten().cumsum(0)),
    "place in what is walked crosswise": lambda x: (x.t().sum(), x.argmax(), x.argmin(0)),
}


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS.keys())
def test_the_order_of_iterations_is_kept_where_it_counts(
    call: Callable[[Tensor], Sequence[Tensor]],
) -> None:
    gm = make_fx(call, tracing_mode="fake")(SQUARE)
    fused = fuse(lower(gm), lambda *_: True)
    assert_same(run_program(gm, fused, [SQUARE], check=True), call(SQUARE))
    as_c = generate(gm, [SQUARE], "forward", Numbering(config=Config(codegen="c", fallback=())))
    assert_same(as_c([SQUARE]), call(SQUARE))


def assert_same(found: Sequence[Any], wanted: Sequence[Tensor]) -> None:
    for mine, eager in zip(found, wanted, strict=True):
        torch.testing.assert_close(mine, eager, rtol=1e-5, atol=1e-4)
