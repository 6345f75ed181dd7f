"""A pass raises on one of its matches: a compile error with a place."""

import torch

aten = torch.ops.aten
EXPECT = {
    "stage": "joint",
    "pass": "fold_powers",
    "kind": "compile-error",
    "exception": "ZeroDivisionError",
    "minimal": ["pow"],
}


def fold_powers(gm):
    for node in list(gm.graph.nodes):
        if node.target is aten.pow.Tensor_Scalar:
            1 / (node.args[1] - 4)


def model():
    return lambda x: (x**2).sin() + (x**3).cos() + (x**4).tanh() * (x**5)


def inputs():
    return (torch.randn(4, 8),)


def config():
    return {"custom_passes": {"joint": [f"{__file__}:fold_powers"]}}
