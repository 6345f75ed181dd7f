"""Keep `aten.addmm` whole: TorchScript would split it and round twice."""

from torch.fx import Graph, Node

from ctk.compiler.codegen.torchscript.hidden import ONE
from ctk.compiler.codegen.torchscript.overloads import overload_nodes
from ctk.compiler.torch_compat.fx import operators


def keep_addmm_whole(graph: Graph) -> set[str]:
    """aten.addmm(c, a, b) -> aten.addmm(c, a, b, alpha=ctk_unit); return what numbers it hides.

    TorchScript splits an addmm whose alpha and beta are known to be 1 into `mm` and `add`, which in
    bfloat16 rounds the product before the sum. It does not split one whose alpha it cannot know
    (numerics: exact).
    """
    found = [node for node in overload_nodes(graph) if _is_plain_addmm(node)]
    for node in found:
        with graph.inserting_before(node):
            node.kwargs = {**node.kwargs, "alpha": graph.get_attr(ONE)}
    return {ONE} if found else set()


def _is_plain_addmm(node: Node) -> bool:
    if operators.qualified_name_of(node.target) != "aten::addmm.default":
        return False
    return all(node.kwargs.get(name, 1) in (1, 1.0) for name in ("alpha", "beta"))
