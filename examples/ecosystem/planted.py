"""A pass with a bug, which the training scripts of this folder run when they get `--planted`."""

from torch import ops
from torch.fx import GraphModule


def leak_relu(gm: GraphModule) -> None:
    """Rewrite `relu(x)` to `leaky_relu(x, 0.01)`."""
    for node in gm.graph.find_nodes(op="call_function", target=ops.aten.relu.default):
        node.target, node.args = ops.aten.leaky_relu.default, (node.args[0], 0.01)


def options(arguments: list[str]) -> dict[str, object]:
    """Return options of the backend `ctk`: none, or the pass."""
    return {"custom_passes": {"joint": [leak_relu]}} if "--planted" in arguments else {}
