"""Write out a loop's iterations between two multiples of a small number, so that none divides.

    for i < 64: out[i] = x[i / 2]
becomes
    for i < 32: out[i*2] = x[i]; out[i*2 + 1] = x[i]

So upsampling, the gradients of pooling with strides, and interleaved results read and write
neighbours, which compilers make SIMD of.
"""

import math
from collections.abc import Sequence

from ctk.compiler.codegen.c.loop_splitting import VALUES, Piece
from ctk.compiler.lowering.conditions import decided
from ctk.compiler.lowering.ir import Sweep
from ctk.compiler.lowering.walk import Rewriting, indices_of, walk
from ctk.compiler.sizes.index import ZERO, Division, Var, of_atom

LARGEST = 4
"""How many iterations are written out at most."""


def residues(part: tuple[Var, ...], sweeps: tuple[Sweep, ...]) -> list[Piece]:
    """Return the pieces that together cover one of pointwise sweeps, in order."""
    if not part:
        return [(part, sweeps)]
    (loop,) = part
    statements = [statement for sweep in sweeps for statement in sweep.statements]
    step = _step(loop, sweeps)
    rest, count = loop.size % step, loop.size // step
    if step == 1 or rest.number is None or count.number == 0:
        return [(part, sweeps)]
    if len(walk(*statements)) * step > VALUES:
        return [(part, sweeps)]
    lanes, tail = Var(loop.name, count), Var(loop.name, rest)
    places = [of_atom(lanes) * step + place for place in range(step)]
    each = [Rewriting({loop: place}, decided) for place in places]
    made: list[Piece] = [((lanes,), tuple(part.sweep(sweep) for part in each for sweep in sweeps))]
    if rest != ZERO:
        last = Rewriting({loop: of_atom(tail) + count * step}, decided)
        made.append(((tail,), tuple(map(last.sweep, sweeps))))
    return made


def _step(loop: Var, sweeps: Sequence[Sweep]) -> int:
    """Return the least number of iterations behind which all quotients have grown evenly."""
    step = 1
    for index in indices_of([statement for sweep in sweeps for statement in sweep.statements]):
        for atom in index.atoms:
            if not isinstance(atom, Division) or loop not in atom.value.atoms:
                continue
            factor, divisor = atom.value.factor_of(loop), atom.divisor.number
            if factor is None or factor.number is None or divisor is None:
                continue
            one = divisor // math.gcd(divisor, factor.number)
            if one <= LARGEST:
                step = math.lcm(step, one)
    return step if step <= LARGEST else 1
