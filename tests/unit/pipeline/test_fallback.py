"""What a failing stage leaves behind when it falls back: nothing of its own."""

import pytest
import torch

aten = torch.ops.aten


def half_done(gm):
    for node in gm.graph.nodes:
        if node.target is aten.sin.default:
            node.target = aten.cos.default
            raise ZeroDivisionError("half done")


@pytest.mark.parametrize("slot", ["joint", "post_grad"])
def test_on_failure_fallback_leaves_the_subgraphs_as_they_were_too(slot):
    def program(x):
        return torch.cond(x.sum() > 0, lambda x: x.sin() * 2, lambda x: x - 1, (x,))

    x = torch.ones(4)
    config = {"custom_passes": {slot: [half_done]}, "on_failure": "fallback"}
    torch.testing.assert_close(torch.compile(program, backend="ctk", options=config)(x), program(x))
