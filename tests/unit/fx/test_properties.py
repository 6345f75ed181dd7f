"""Questions that passes ask of a node."""

import pytest
import torch

from ctk.compiler.fx.properties import is_pure, is_random

aten = torch.ops.aten
ATTENTION = aten._scaled_dot_product_flash_attention_for_cpu.default


@pytest.mark.parametrize(
    ("target", "arguments", "kwargs", "random"),
    [
        (ATTENTION, (), {}, False),
        (ATTENTION, (0.0,), {"scale": 0.5}, False),
        (ATTENTION, (0.5,), {}, True),
        (ATTENTION, (), {"dropout_p": 0.5}, True),
        (aten.rand_like.default, (), {}, True),
        (aten.sin.default, (), {}, False),
    ],
)
def test_attention_is_random_where_it_drops(target, arguments, kwargs, random):
    graph = torch.fx.Graph()
    tensors = [graph.placeholder(name) for name in "qkv"]
    count = 3 if target is ATTENTION else 1
    node = graph.call_function(target, (*tensors[:count], *arguments), kwargs)
    assert is_random(node) is random
    assert is_pure(node) is not random
