"""A pass on the captured graph copies what the program returns as a view of its input."""

import torch

EXPECT = {
    "stage": "pre_grad",
    "pass": "copy_views",
    "kind": "alias",
    "minimal_at_most": 1,
}


def copy_views(gm):
    for node in list(gm.graph.nodes):
        if node.op == "call_method" and node.target == "transpose":
            with gm.graph.inserting_after(node):
                copied = gm.graph.call_method("clone", (node,))
            node.replace_all_uses_with(copied)
            copied.args = (node,)


def model():
    def program(x):
        return x.transpose(0, 1), (x * 2).relu() + 1

    return program


def inputs():
    return (torch.randn(3, 4),)


def config():
    return {"custom_passes": {"pre_grad": [f"{__file__}:copy_views"]}}
