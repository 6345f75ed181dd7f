"""Give inputs the form that a later value has, and drop the nodes that brought it into that form.

relu = relu(x)              x: float32[16]      relu = relu(x)      x: float32[4, 8]
amax = amax(relu)                               mm = mm(relu, w)
expand = amax.expand(4, 8)
mm = mm(expand, w)
"""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch.fx import Node

from ctk.compiler.fx.walk import CALLS, by_name
from ctk.toolkit.case.case import Case
from ctk.toolkit.reduce.analysis import Facts
from ctk.toolkit.reduce.eager_values import TensorInfo, values_before
from ctk.toolkit.reduce.proposal import Proposals, Step, Subset
from ctk.toolkit.reduce.reconnection import reconnect
from ctk.toolkit.reduce.steps.shortcut import EVERY_PAIR


@dataclass(frozen=True, slots=True)
class ReformInputs:
    """Replace a later value by an earlier one, and give inputs the form of the later one.

    Attributes:
        node: The later value, removed with the nodes that only it reads.
    """

    node: str
    source: str
    inputs: tuple[str, ...]

    def says(self) -> str:
        return f"{self.source} in the form of {self.node}, in its place"

    def apply(self, case: Case, facts: Facts) -> Case | None:
        reader = next(iter(by_name(case.graph)[self.node].users), None)
        value = reader and values_before(case, {self.node: reader.name})[self.node]
        if not isinstance(value, torch.Tensor):
            return None
        values: dict[str, torch.Tensor] = {}
        for name in self.inputs:
            info = facts.infos[name]
            assert isinstance(info, TensorInfo)
            values[name] = _like(value, info)
        found = reconnect(case, facts, frozenset({self.node}), {self.node: self.source}, values)
        is_shorter = found is not None and len(found.graph.graph.nodes) < len(
            case.graph.graph.nodes
        )
        return found if is_shorter else None


def _like(value: torch.Tensor, info: TensorInfo) -> torch.Tensor:
    copy = value.detach().to(info.dtype, copy=True).contiguous()
    return copy.requires_grad_(info.requires_grad)


def propose(case: Case, facts: Facts) -> Proposals:
    """Propose for each value its ancestors of another shape: all, or the operands of its node."""
    is_small = not is_late(case, facts)
    alone = {unit[0] for unit in facts.units if len(unit) == 1}
    atoms = [
        ReformInputs(node.name, source.name, inputs)
        for node in case.graph.graph.nodes
        if node.name in alone
        for source in (_sources(node) if is_small else _reads(node))
        if (inputs := _inputs(node, source, facts))
    ]
    return [Subset(lambda chosen: chosen[0], (atom,)) for atom in atoms]


def _reads(node: Node) -> list[Node]:
    return [operand for operand in node.all_input_nodes if operand.op in CALLS]


def _sources(node: Node) -> Iterator[Node]:
    seen: set[Node] = set()
    todo = list(node.all_input_nodes)
    while todo:
        each = todo.pop()
        if each not in seen and each.op in CALLS:
            seen.add(each)
            yield each
            todo.extend(each.all_input_nodes)


def _inputs(node: Node, source: Node, facts: Facts) -> tuple[str, ...]:
    wanted, given = facts.infos[node.name], facts.infos[source.name]
    if not isinstance(wanted, TensorInfo) or not isinstance(given, TensorInfo):
        return ()
    if wanted.shape == given.shape:
        return ()
    reached = {source, *_sources(source)}
    read = {
        operand
        for call in reached
        for operand in call.all_input_nodes
        if operand.op == "placeholder"
    }
    infos = {each.name: facts.infos[each.name] for each in read}
    return tuple(
        sorted(n for n, i in infos.items() if isinstance(i, TensorInfo) and i.shape == given.shape)
    )


def is_late(case: Case, facts: Facts) -> bool:
    """Return whether there is more to remove first."""
    return len(facts.units) > EVERY_PAIR


STEP = Step("reform_inputs", propose, is_late=is_late)
