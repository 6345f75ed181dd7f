"""Call views by ops that say so: TorchScript trusts schemas about who shares memory with whom.

    _unsafe_view(x, size)  -> view(x, size)      and likewise unsafe_split, unsafe_chunk

They are the same op but for autograd, which is done with the graph. Of two equal tensors whose
`_unsafe_view`s are returned TorchScript would make one, and both results would share its memory.
"""

from torch.fx import Graph

from ctk.compiler.fx.operator_facts import UNDECLARED_VIEWS


def declare_views(graph: Graph) -> None:
    """Replace each view whose schema does not say that it is one by its twin that does."""
    for node in graph.nodes:
        if node.target in UNDECLARED_VIEWS:
            node.target = UNDECLARED_VIEWS[node.target]
