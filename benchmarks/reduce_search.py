"""Compare ways to search for the largest set of edits that can be made together.

    python -m benchmarks.reduce_search [--size N] [--seeds N]

Halving with memory (what the reducer does), binary splitting, ddmin, ProbDD, counter-based
probabilities and chunks from the front or the back, each inside the reducer on the same planted
problems, and each on bare sets. Counted are the questions until the result is 1-minimal, the last
look at every single edit included.

Source: Hwang, A Method for Detecting All Defective Members in a Population by Group Testing, JASA
1972 (here a block is as long as the gap before the last atom that was needed); Zeller and
Hildebrandt, Simplifying and Isolating Failure-Inducing Input, TSE 2002; Wang et al., Probabilistic
Delta Debugging, ESEC/FSE 2021; Zhang et al., Toward a Better Understanding of Probabilistic Delta
Debugging, 2024 (counters in place of probabilities).
"""

import argparse
import math
import random
import statistics
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

from benchmarks.reduce_measure import TimedOracle, case_of
from ctk.toolkit.reduce.driver import minimize
from ctk.toolkit.reduce.problem import Problem
from ctk.toolkit.reduce.proposal_search import thorough
from ctk.toolkit.search.blocks import largest_subset, largest_subset_from_singles
from ctk.toolkit.search.questions import Search, run_search
from tests.helpers.reduce_families import FAMILIES

Subset = Callable[[Sequence[Any]], Search[tuple[Any, ...], tuple[Any, ...]]]

FAMILY_NAMES = (
    "two_scattered", "three_scattered", "equal_ops", "equal_ops_dag", "feeding_transformer",
    "feeding_dag", "diamond",
)  # fmt: skip


def ddmin(atoms: Sequence[Any]) -> Search[tuple[Any, ...], tuple[Any, ...]]:
    """Remove one of n blocks, n doubling where none can go."""
    kept, count = list(range(len(atoms))), 2
    while kept and count <= len(kept):
        width = math.ceil(len(kept) / count)
        blocks = [kept[i : i + width] for i in range(0, len(kept), width)]
        for block in blocks:
            if (yield _without(atoms, kept, block)):
                kept = [place for place in kept if place not in block]
                count = max(count - 1, 2)
                break
        else:
            if count >= len(kept):
                break
            count = min(2 * count, len(kept))
    return _gone(atoms, kept)


def probdd(atoms: Sequence[Any]) -> Search[tuple[Any, ...], tuple[Any, ...]]:
    """Remove what is worth most, given how likely each atom is to be needed."""
    chance = dict.fromkeys(range(len(atoms)), 0.1)
    while chance and min(chance.values()) < 0.999:
        order = sorted(chance, key=lambda place: (chance[place], place))
        block = _best_block(order, chance)
        if (yield _without(atoms, list(chance), block)):
            for place in block:
                del chance[place]
        else:
            lost = 1 - math.prod(1 - chance[place] for place in block)
            for place in block:
                chance[place] = min(1.0, chance[place] / lost)
    return _gone(atoms, list(chance))


def _best_block(order: Sequence[int], chance: dict[int, float]) -> list[int]:
    best, gain, survives = 1, 0.0, 1.0
    for count, place in enumerate(order, 1):
        survives *= 1 - chance[place]
        if count * survives > gain:
            best, gain = count, count * survives
    return list(order[:best])


def counters(atoms: Sequence[Any]) -> Search[tuple[Any, ...], tuple[Any, ...]]:
    """Remove blocks whose size follows from a probability that grows with each round."""
    kept, chance = list(range(len(atoms))), 0.1
    while True:
        width = max(1, min(len(kept), round(-1 / math.log(1 - chance)))) if chance < 1 else 1
        for block in list(_blocks(kept, width)):
            if (yield _without(atoms, kept, block)):
                kept = [place for place in kept if place not in block]
        if width == 1 or not kept:
            return _gone(atoms, kept)
        chance *= math.e / (math.e - 1)


def chunks(
    atoms: Sequence[Any], *, from_the_back: bool
) -> Search[tuple[Any, ...], tuple[Any, ...]]:
    """Remove blocks of half the atoms, then of a quarter, and so on."""
    kept = list(range(len(atoms)))
    width = len(kept)
    while width:
        blocks = list(_blocks(kept, width))
        for block in reversed(blocks) if from_the_back else blocks:
            if (yield _without(atoms, kept, block)):
                kept = [place for place in kept if place not in block]
        width //= 2
    return _gone(atoms, kept)


def splitting(atoms: Sequence[Any]) -> Search[tuple[Any, ...], tuple[Any, ...]]:
    """Bisect a refused block down to one atom, and leave what is behind it to the next block."""
    chosen: list[int] = []
    place, width, gap = 0, len(atoms), 0
    while place < len(atoms):
        block = range(place, min(place + width, len(atoms)))
        is_taken = yield tuple(atoms[each] for each in (*chosen, *block))
        while not is_taken and len(block) > 1:
            left = block[: len(block) // 2]
            if (yield tuple(atoms[each] for each in (*chosen, *left))):
                chosen.extend(left)
                gap, block = gap + len(left), block[len(left) :]
            else:
                block = left
        place = block.stop
        if is_taken:
            chosen.extend(block)
            gap, width = gap + len(block), 2 * width
        else:  # the next one is most likely as far away as this one was
            gap, width = 0, max(1, gap)
    return tuple(atoms[each] for each in chosen)


def _blocks(kept: Sequence[int], width: int) -> Iterator[Sequence[int]]:
    return (kept[i : i + width] for i in range(0, len(kept), width))


def _without(atoms: Sequence[Any], kept: Sequence[int], block: Sequence[int]) -> tuple[Any, ...]:
    left = set(kept) - set(block)
    return tuple(atom for place, atom in enumerate(atoms) if place not in left)


def _gone(atoms: Sequence[Any], kept: Sequence[int]) -> tuple[Any, ...]:
    return _without(atoms, kept, ())


WAYS: dict[str, Subset] = {
    "halving": largest_subset,
    "splitting": splitting,
    "ddmin": ddmin,
    "ProbDD": probdd,
    "counters": counters,
    "chunks, front": partial(chunks, from_the_back=False),
    "chunks, back": partial(chunks, from_the_back=True),
}


def on_a_family(name: str, size: int, seed: int, way: Subset) -> tuple[int, int]:
    """Return the questions that the reducer asks with a way, and the call nodes that it leaves."""
    planted = FAMILIES[name].build(size, seed)
    oracle = TimedOracle(planted)
    problem = Problem(case_of(planted), oracle)
    found = minimize(problem, blocks=partial(thorough, subset=way))
    return oracle.questions, found.nodes_after


def on_sets(count: int, needed: int, *, is_clustered: bool, seed: int, way: Subset) -> int:
    """Return the questions for `needed` atoms of `count`, the last look at each included."""
    random_ = random.Random(seed)
    first = random_.randrange(count - needed + 1)
    some = range(first, first + needed) if is_clustered else random_.sample(range(count), needed)
    wanted, asked = frozenset(some), set[tuple[int, ...]]()

    def is_true(chosen: tuple[int, ...]) -> bool:
        asked.add(chosen)
        return not wanted & set(chosen)

    gone = run_search(way(range(count)), is_true)
    kept = [place for place in range(count) if place not in set(gone)]
    run_search(
        largest_subset_from_singles(kept), lambda more: is_true(tuple(sorted({*gone, *more})))
    )
    return len(asked)


def main() -> None:
    """Print a table of medians and maxima."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--size", type=int, default=200)
    parser.add_argument("--seeds", type=int, default=5)
    given = parser.parse_args()
    print(f"{'':34}" + "".join(f"{name:>16}" for name in WAYS))
    for count, needed in ((100, 1), (100, 3), (100, 10), (800, 3), (800, 20), (30, 20)):
        for is_clustered in (False, True):
            kind = "together" if is_clustered else "scattered"
            row = [
                [
                    on_sets(count, needed, is_clustered=is_clustered, seed=seed, way=way)
                    for seed in range(4 * given.seeds)
                ]
                for way in WAYS.values()
            ]
            _print(f"{needed} of {count}, {kind}", row)
    for name in FAMILY_NAMES:
        found = [
            [on_a_family(name, given.size, seed, way) for seed in range(given.seeds)]
            for way in WAYS.values()
        ]
        _print(f"{name} {given.size}", [[each[0] for each in row] for row in found])
        _print("    nodes left", [[each[1] for each in row] for row in found])


def _print(name: str, rows: Sequence[Sequence[int]]) -> None:
    cells = (f"{statistics.median(row):.0f} ({max(row)})" for row in rows)
    print(f"{name:34}" + "".join(f"{cell:>16}" for cell in cells), flush=True)


if __name__ == "__main__":
    main()
