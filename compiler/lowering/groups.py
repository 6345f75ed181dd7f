"""Steps of a program that have become one, and what must run before what among them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from ctk.compiler.lowering.ir import Step


@dataclass(slots=True, eq=False)
class Group:
    """Steps that have become one.

    Attributes:
        step: The kernel, or the library call.
        first: The place of its earliest step in the program.
        place: The place of its latest.
        nodes: Names of the graph's nodes in it.
        after: What must run before it.
        before: What must run after it.
        partners: The kernels that make no node's value without it.
        refused: The kernels that it cannot be fused with as it is.
    """

    step: Step
    first: int
    place: int
    nodes: tuple[str, ...]
    after: dict[Group, None] = field(default_factory=dict["Group", None])
    before: dict[Group, None] = field(default_factory=dict["Group", None])
    partners: dict[Group, None] = field(default_factory=dict["Group", None])
    refused: set[int] = field(default_factory=set[int])


def put_before(earlier: Group, later: Group) -> None:
    """Note that one group must run before another."""
    if earlier is not later:
        earlier.before[later] = None
        later.after[earlier] = None


def leads(first: Group, second: Group) -> bool:
    """Return whether another step must run between two: then they cannot be one.

    Kernels that share a node's own memory run together, so nothing may come between them, either.
    Such a kernel may be what must run between the two.
    """
    pair = (first, second)
    whole = (*pair, *first.partners, *second.partners)
    return any(_reaches(s, pair) for s in pair) or any(_reaches(s, whole) for s in whole)


def _reaches(start: Group, whole: Sequence[Group]) -> bool:
    """Return whether a path leads from a group back to one of `whole` through any other group."""
    low = min(group.first for group in whole)
    stack = [each for each in start.after if each not in whole]
    seen = set(stack)
    while stack:
        for earlier in stack.pop().after:
            if earlier in whole:
                return True
            if earlier not in seen and earlier.place >= low:
                seen.add(earlier)
                stack.append(earlier)
    return False
