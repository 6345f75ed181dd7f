"""Start collectives early and wait for them late, so that computation runs meanwhile.

Rules; only the order changes: exact.
    1. start   a collective moves to its operand, behind the last one before it; casts and views
               that only it reads move with it
    2. wait    a wait moves to the first reader of its result
Preconditions: no write, mode or other graph in between. Collectives keep their order, so that ranks
whose graphs differ elsewhere still meet. An all_gather stays behind the wait of the `prefetch`-th
gather before it, which bounds the gathered memory: with 1, the parameters of the next layer are
gathered while a layer computes, the order of FSDP2.

Off unless `enabled`: memory lives longer, and the gain depends on the network.

Source: `schedule_comm_wait` of `torch/_inductor/fx_passes/ddp_fusion.py`, `raise_comms` and
`sink_waits` of `torch/_inductor/comms.py`, and the implicit prefetch of
`torch/distributed/fsdp/_fully_shard`. They estimate times; this pass does not.
"""

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.fx import Graph, Node

from ctk.compiler.fx.collectives import ALL_GATHER, is_start
from ctk.compiler.fx.effects import is_barred
from ctk.compiler.fx.operator_facts import CASTS
from ctk.compiler.fx.properties import is_view
from ctk.compiler.passes.post_grad.collectives import Collective, collectives_of, gather, reduce
from ctk.compiler.rewriting.base import Example, Pass
from ctk.compiler.rewriting.rewriter import Rewriter


@dataclass(frozen=True, slots=True)
class OverlapCollectives(Pass):
    """Start collectives early and wait for them late.

    Attributes:
        enabled: Move them.
        prefetch: The number of results of all_gather that may be on the way.
    """

    name = "overlap_collectives"
    enabled: bool = False
    prefetch: int = 1

    def run(self, rewriter: Rewriter) -> None:
        if not self.enabled:
            return
        for each in reversed(list(collectives_of(rewriter.graph))):
            _wait_late(rewriter, each)
        gathers: list[Collective] = []
        for each in list(collectives_of(rewriter.graph)):
            bound = None
            if each.kind == ALL_GATHER:
                gathers.append(each)
                bound = gathers[-1 - self.prefetch].wait if len(gathers) > self.prefetch else None
            _start_early(rewriter, each, bound)


def _wait_late(rewriter: Rewriter, each: Collective) -> None:
    places = {node: place for place, node in enumerate(rewriter.graph.nodes)}
    first = min(each.wait.users, key=places.__getitem__, default=each.wait)
    node = each.wait.next
    while node is not first and is_start(node):
        node = node.next
    if first is each.wait or node is first or is_barred(each.wait, first):
        return
    rule = "wait -> in front of its first reader"
    rewriter.rewrite(rule, [each.wait, first], lambda graph: first.prepend(each.wait))


def _start_early(rewriter: Rewriter, each: Collective, bound: Node | None) -> None:
    """Move a collective behind its operands, the collective before it, and `bound`."""
    if bound is not None and each.start < bound:
        return
    block = _with_casts(each.start)
    behind = {operand for node in block for operand in node.all_input_nodes} | {bound}
    node, passed = each.start.prev, False
    while node in block or (node not in behind and not is_start(node)):
        if node.op in ("placeholder", "root"):
            break
        passed = passed or node not in block
        node = node.prev
    if not passed or node.op == "root" or is_barred(node, each.start):
        return

    def edit(graph: Graph) -> None:
        for each in reversed(block):
            node.append(each)

    rewriter.rewrite("start -> behind its operand", [*reversed(block), node], edit)


def _with_casts(start: Node) -> list[Node]:
    """Return a collective behind the casts and views that only it reads, in order."""
    block = [start]
    while len(block[0].all_input_nodes) == 1:
        (operand,) = block[0].all_input_nodes
        is_cheap = operand.op == "call_function" and (is_view(operand) or operand.target in CASTS)
        if not is_cheap or len(operand.users) > 1:
            break
        block.insert(0, operand)
    return block


def examples() -> list[Example]:
    """Return programs that the pass changes."""
    return [(_layers, (torch.ones(4, 3), torch.ones(3, 4)))]


def _layers(x: Tensor, y: Tensor) -> Tensor:
    hidden = gather(x).sum(0) + x.sin()
    return reduce(hidden @ gather(y.double()).float()[:3]) + hidden.sum()


PASS = OverlapCollectives()
