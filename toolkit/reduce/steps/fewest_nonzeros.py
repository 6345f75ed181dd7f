"""Set elements to zero until each remaining one is needed: delta debugging over elements.

The largest one, or a NaN, is tried alone first. Else the elements are cut into four blocks, the
kept blocks into four each: one needed element of n costs about 2 log2(n) questions. If all four
blocks are needed the search ends there.
"""

from collections.abc import Iterator, Mapping
from functools import partial

import torch

from ctk.toolkit.case.case import Case
from ctk.toolkit.case.formats.tensor_content import Content, block_count, block_range
from ctk.toolkit.reduce.analysis import Facts
from ctk.toolkit.reduce.proposal import Guesses, Proposal, Proposals, Step, Subset
from ctk.toolkit.reduce.value_edits import KeepLargest, ZeroElements, changeable, core_shape

FEW = 8
"""So many non-zeros are asked about one by one."""


def propose(case: Case, facts: Facts) -> Proposals:
    """Propose to keep the largest elements, of all tensors, then of each; then to drop blocks."""
    tensors = changeable(case)
    known = {name: facts.contents.of(tensor) for name, tensor in tensors.items()}
    names = tuple(name for name in tensors if known[name].nonzeros > 1)
    proposals: list[Proposal] = [_largest(names, known)] if names[1:] else []
    for name in names:
        proposals.append(_largest((name,), known))
        proposals.extend(_blocks(name, core_shape(tensors[name]), known[name]))
    return proposals


def _largest(names: tuple[str, ...], known: Mapping[str, Content]) -> Guesses:
    many = tuple(name for name in names if known[name].nonzeros > FEW)
    return Guesses((KeepLargest(names, 1), *([KeepLargest(many, FEW)] if many else [])))


def _blocks(name: str, shape: tuple[int, ...], content: Content) -> Iterator[Proposal]:
    """Yield the choices of blocks to drop, level by level.

    Left out: a level below a completely needed one (with no block of zeros), and a level with a
    block for each of a few non-zeros, before the last level.
    """
    count, is_few = torch.Size(shape).numel(), content.nonzeros <= FEW
    above: tuple[int, ...] | None = ()
    for level, blocks in enumerate(content.blocks):
        is_dense = above is None or len(above) == block_count(level - 1, count)
        above = blocks
        if blocks is None or (is_dense and level and not is_few):
            continue
        is_last = level == len(content.blocks) - 1
        if is_last or not is_few or len(blocks) < content.nonzeros:
            spans = [block_range(block, level, count) for block in blocks]
            atoms = tuple((span.start, span.stop) for span in spans)
            yield Subset(partial(ZeroElements, name, shape), atoms)


STEP = Step("fewest_nonzeros", propose, detail="values")
