"""Block searches: the atoms that can go together, the needed atoms, or the single cause.

Atoms that stand beside each other are likely to be needed, or useless, together.

Source: halving blocks is ddmin (Zeller and Hildebrandt, Simplifying and Isolating Failure-Inducing
Input, 2002). Unlike in ddmin, a refused block is split in two and never asked again with another
partition, so that k needed elements of n cost about 2 k log2(n / k) questions.
"""

from collections.abc import Sequence
from typing import TypeVar

from ctk.toolkit.search.boundaries import smallest_true
from ctk.toolkit.search.questions import Search, first_true, map_choices

Atom = TypeVar("Atom")
Block = tuple[Atom, ...]


def largest_subset(atoms: Sequence[Atom]) -> Search[Block[Atom], Block[Atom]]:
    """Return atoms, in their order, that are true together and that no untried block enlarges.

    Blocks are tried whole, then halved down to single atoms; an accepted block stays accepted.

    Args:
        atoms: The choice. Read by position only: it may be as long as a `range`.
    """
    chosen: list[int] = []
    if atoms:
        yield from _take(atoms, chosen, range(len(atoms)), is_refused=False)
    return _pick(atoms, chosen)


def largest_subset_from_singles(atoms: Sequence[Atom]) -> Search[Block[Atom], Block[Atom]]:
    """Return atoms that are true together, every other one having been refused alone.

    For atoms that are most likely needed. After an accepted atom the next two, four, ... are tried
    at once, and halved if they are refused.
    """
    chosen: list[int] = []
    position, width = 0, 1
    while position < len(atoms):
        block = range(position, min(position + width, len(atoms)))
        is_taken = yield from _take(atoms, chosen, block, is_refused=False)
        position, width = block.stop, 2 * width if is_taken else 1
    return _pick(atoms, chosen)


def smallest_subset(atoms: Sequence[Atom]) -> Search[Block[Atom], Block[Atom] | None]:
    """Return atoms, in their order, that are true together and of which none can be left out.

    None if not even all of them are true. The empty set is never asked.
    """
    if not atoms or not (yield tuple(atoms)):
        return None

    def all_but(gone: Block[int]) -> Block[Atom]:
        left_out = set(gone)
        return tuple(atom for index, atom in enumerate(atoms) if index not in left_out)

    gone: list[int] = []
    everything = range(len(atoms))
    yield from map_choices(_take(everything, gone, everything, is_refused=True), all_but)
    return all_but(tuple(gone))


def prefix_end(atoms: Sequence[Atom]) -> Search[Block[Atom], Atom]:
    """Return the last atom of the shortest prefix that is true; the whole is assumed to be."""
    length = yield from map_choices(smallest_true(len(atoms)), lambda n: tuple(atoms[:n]))
    return atoms[length - 1]


def single_cause(atoms: Sequence[Atom]) -> Search[Block[Atom], Atom | None]:
    """Return the atom that is true alone, in 2 + log2(n) questions; None if there is not one."""
    if not atoms or not (yield tuple(atoms)):
        return None
    return (yield from _single_cause_in(atoms))


def likely_cause(atoms: Sequence[Atom], few: int = 3) -> Search[Block[Atom], Atom | None]:
    """Return the atom that is true alone, of atoms in the order of their likelihood; or None.

    A few are asked one by one. Of many, one half is asked and then, if need be, the other; the true
    half is halved further.
    """
    if len(atoms) <= few:
        cause = yield from first_true([(atom,) for atom in atoms])
        return cause[0] if cause else None
    middle = (len(atoms) + 1) // 2
    half = yield from first_true([tuple(atoms[:middle]), tuple(atoms[middle:])])
    return (yield from _single_cause_in(half)) if half else None


def every_cause(atoms: Sequence[Atom], most: int) -> Search[Block[Atom], Block[Atom]]:
    """Return the atoms that are true alone, at most so many; a false block holds none.

    One question if there is none; about 2 k log2(n / k) for k of n.
    """
    if not atoms or most <= 0 or not (yield tuple(atoms)):
        return ()
    if len(atoms) == 1:
        return tuple(atoms)
    middle = len(atoms) // 2
    left = yield from every_cause(atoms[:middle], most)
    right = yield from every_cause(atoms[middle:], most - len(left))
    return (*left, *right)


def likely_causes(atoms: Sequence[Atom], most: int) -> Search[Block[Atom], Block[Atom]]:
    """Return the likely cause, and at most so many others that are true alone; () if none is."""
    first = yield from likely_cause(atoms)
    if first is None:
        return ()
    others = yield from every_cause([atom for atom in atoms if atom != first], most)
    return (first, *others)


def _single_cause_in(atoms: Sequence[Atom]) -> Search[Block[Atom], Atom | None]:
    cause = yield from prefix_end(atoms)
    return cause if (yield (cause,)) else None


def _take(
    atoms: Sequence[Atom], chosen: list[int], block: range, *, is_refused: bool
) -> Search[Block[Atom], bool]:
    """Take as much of a block as can be taken; return whether that is all of it.

    Args:
        chosen: Positions of the accepted ones, extended in place.
        is_refused: The block as a whole is known to be refused.
    """
    if not is_refused and (yield _pick(atoms, [*chosen, *block])):
        chosen.extend(block)
        return True
    if len(block) == 1:
        return False
    middle = len(block) // 2
    is_left_taken = yield from _take(atoms, chosen, block[:middle], is_refused=False)
    # With the left half taken, the right half whole is the question that was just refused.
    is_right_taken = yield from _take(atoms, chosen, block[middle:], is_refused=is_left_taken)
    return is_left_taken and is_right_taken


def _pick(atoms: Sequence[Atom], positions: Sequence[int]) -> Block[Atom]:
    return tuple(atoms[position] for position in sorted(positions))
