"""Verify a changed graph: well-formed, and every touched value keeps its type on fake tensors.

Only changed nodes and users of new layouts are computed again, so that an idle pass costs nothing;
nor is a node that got its type when it was inserted, if its operands are the same.
The new types are recorded on the nodes for later passes. The toolkit checks the values.
"""

from graphlib import CycleError

from torch.fx import GraphModule, Node
from torch.fx.node import map_arg

from ctk.compiler.errors import VerifyError
from ctk.compiler.fx.order import sort_stably
from ctk.compiler.fx.restride import same_layouts
from ctk.compiler.fx.torch_calls import read_call
from ctk.compiler.fx.types import same_type, type_text, value_of
from ctk.compiler.rewriting.node_types import UNKNOWN, compute_type, fake_mode_of, is_typed
from ctk.compiler.rewriting.numbering import NodeState, PassRun
from ctk.compiler.torch_compat.fake import fake_tensors as fake


def verify(run: PassRun) -> None:
    """Check the graphs that a pass changed.

    Raises:
        VerifyError: A graph is ill-formed, a node cannot run on its operands' types, or a value
            changed its type. Names the pass, the earlier passes, the node, and a remedy for the
            author of the pass.
    """
    for module, states in run.states.items():
        lint(run, module)
        mode = fake_mode_of(module)
        if mode is None:
            continue
        moved: set[Node] = set()
        for node in module.graph.nodes:
            is_moved = not moved.isdisjoint(node.all_input_nodes)
            if is_moved or (_is_changed(node, states) and not is_typed(run, node)):
                known = value_of(node)
                _retype(run, module, node, states, mode)
                if not same_layouts(known, value_of(node)):
                    moved.add(node)


def put_in_order(run: PassRun, module: GraphModule) -> None:
    """Sort a graph stably if a pass has put a node before one of its operands.

    Raises:
        VerifyError: Nodes read each other, or cannot be sorted without another order of writes.
    """
    try:
        sort_stably(module.graph)
    except CycleError as error:
        why, nodes = error.args
        chain = " -> ".join(node.name for node in nodes)
        what = f"left nodes that have no order: {why}: {chain}"
        advice = (
            "a node must not read a value that depends on it; insert it in front of its first user"
        )
        raise run.contract_error(what, "", advice, module=module, node=nodes[0].name) from error


def lint(run: PassRun, module: GraphModule) -> None:
    """Raise `VerifyError` if a graph is ill-formed."""
    try:
        module.graph.lint()
    except Exception as error:
        advice = "erase a node only when it has no users, and insert a node before its first user"
        raise run.contract_error(
            f"left an ill-formed graph: {error}", "", advice, module=module
        ) from error


def _is_changed(node: Node, states: dict[Node, NodeState]) -> bool:
    known, now = states.get(node), (node.target, node.args, node.kwargs)
    if known is None or known == now:
        return known is None
    call = read_call(*known)  # another spelling of the same call keeps its type
    return call is None or call != read_call(*now)


def _retype(
    run: PassRun, module: GraphModule, node: Node, states: dict[Node, NodeState], mode: object
) -> None:
    if node.op == "output":
        _check_outputs(run, module, node, states)
        return
    old = value_of(node) if node in states else None
    new = compute_type(run, module, node, mode)
    if new is UNKNOWN:
        return
    if old is not None and not fake.has_unbacked(new) and not same_type(old, new):
        raise _type_error(run, module, node.name, old, new)
    node.meta["val"] = new


def _check_outputs(
    run: PassRun, module: GraphModule, node: Node, states: dict[Node, NodeState]
) -> None:
    known = states.get(node)
    if known is None:
        return
    old_nodes: list[Node] = []
    new_nodes: list[Node] = []
    map_arg(known[1], old_nodes.append)
    map_arg(node.args, new_nodes.append)
    if len(old_nodes) != len(new_nodes):
        what = f"changed the number of outputs from {len(old_nodes)} to {len(new_nodes)}"
        advice = "give the output node as many values as before: its caller unpacks that many"
        raise run.contract_error(what, "", advice, module=module)
    for old, new in zip(old_nodes, new_nodes, strict=True):
        before, after = value_of(old), value_of(new)
        if before is not None and after is not None and not same_type(before, after):
            raise _type_error(run, module, new.name, before, after)


def _type_error(
    run: PassRun, module: GraphModule, name: str, old: object, new: object
) -> VerifyError:
    types = f"{type_text(old, device=True)} to {type_text(new, device=True)}"
    what = f"changed the type of {name} from {types}"
    advice = "insert a conversion to the old type, or leave the node alone"
    return run.contract_error(what, "", advice, module=module, node=name)
