"""A pass computes in half precision and forgets to convert back: the verifier names it."""

import torch

aten = torch.ops.aten
EXPECT = {
    "stage": "joint",
    "pass": "halve",
    "kind": "compile-error",
    "exception": "VerifyError",
    "minimal_at_most": 1,
}


def halve(gm):
    for node in list(gm.graph.nodes):
        if node.target is aten.exp.default:
            with gm.graph.inserting_before(node):
                half = gm.graph.call_function(
                    aten._to_copy.default, (node.args[0],), {"dtype": torch.float16}
                )
            node.args = (half,)


def model():
    return lambda x: torch.relu(x.sin().exp() * 2) + x


def inputs():
    return (torch.randn(4, 8),)


def config():
    return {"custom_passes": {"joint": [f"{__file__}:halve"]}}
