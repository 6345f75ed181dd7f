"""The process groups of the collectives in a graph: recorded, and replaced by stand-ins.

A case is run in one process. A group that this process does not have gets a stand-in of the same
name and size, in which each rank has the data of this one.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from torch.fx import GraphModule

from ctk.compiler.torch_compat.fx.arguments import names_and_types
from ctk.compiler.torch_compat.fx.operators import kind_of
from ctk.compiler.torch_compat.process.process_groups import place_in_group, stand_in_for_group
from ctk.toolkit.case.formats.schema import document


@document
@dataclass(frozen=True, slots=True)
class ProcessGroup:
    """The place of the process of a case in a process group."""

    rank: int
    size: int


def groups_of(gm: GraphModule) -> dict[str, ProcessGroup]:
    """Return the process groups of the collectives of a graph and its sub-graphs, by name."""
    graphs = (part.graph for part in gm.modules() if isinstance(part, GraphModule))
    calls = (node for graph in graphs for node in graph.nodes if node.op == "call_function")
    collectives = (node for node in calls if _takes_group(node.target))
    arguments = [each for node in collectives for each in (*node.args, *node.kwargs.values())]
    places = {name: place_in_group(name) for name in arguments if isinstance(name, str)}
    return {name: ProcessGroup(*place) for name, place in sorted(places.items()) if place}


def _takes_group(target: object) -> bool:
    is_operator = kind_of(target) in ("overload", "packet")
    return is_operator and any(name == "group_name" for name, _ in names_and_types(target))


def replace_missing(groups: Mapping[str, ProcessGroup]) -> None:
    """Make a stand-in for each group that this process does not have."""
    for name, group in groups.items():
        stand_in_for_group(name, group.rank, group.size)
