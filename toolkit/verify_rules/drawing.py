"""Draw operands for a program: at first at random, later by mutating an accepted draw.

Most random draws are refused, so most draws mutate an accepted one in one place, as coverage-guided
fuzzers do; acceptance by the guard takes the role of coverage.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice, product
from random import Random
from typing import cast

import torch

from ctk.toolkit.verify_rules.draws import Draw, DrawProgram, Neighbour
from ctk.toolkit.verify_rules.operands import (
    DENSE,
    DTYPES,
    LAYOUTS,
    PLACES,
    Constant,
    Operand,
    TensorDraw,
    Variable,
    draw_values,
)
from ctk.toolkit.verify_rules.schemas import ArgumentRole

SIZES = (2, 3, 1, 4, 0, 5)
WEIGHTS = (6, 6, 4, 2, 2, 1)
SCALARS = (1, 0, 2, -1, 3, 0.5, 1.0, 0.0, -0.0, 1.5, True, math.nan, math.inf, 255, 2**31)
CHOICES: Mapping[str, tuple[object, ...]] = {
    "dtype": (None, *DTYPES),
    "memory_format": (
        *(None, torch.contiguous_format, torch.preserve_format),
        *(torch.channels_last, torch.channels_last_3d),
    ),
    "rounding_mode": (None, "trunc", "floor"),
    "approximate": ("none", "tanh"),
    "correction": (None, 0, 1, 2, 0.5),
}
"""Values of an argument by its name, for every operator."""

FILLS = ("fill_value", "value", "s")
"""The number arguments of a factory other than sizes."""

CONDITIONS, INDICES = ("condition", "mask"), ("index", "indices")
"""Tensors that are mostly bools, and mostly small whole numbers, by the name of the argument."""


def draw_randomly(random: Random, program: DrawProgram) -> Draw:
    """Return a random draw: sizes from a pool of two, mostly one dtype."""
    known = [hint for hint in program.hints if type(hint) is int and 1 < hint < 16]
    hinted = [size for each in known for size in (each, each + 1)]
    weights = (*WEIGHTS, *(2 for _ in hinted))
    pool = random.choices((*SIZES, *hinted), weights, k=random.choice((1, 2, 2, 3)))
    base = tuple(random.choice(pool) for _ in range(random.choice((0, 1, 1, 2, 2, 2, 3, 4))))
    operands = _Operands(random, pool, base, random.choice(DTYPES))
    bound = {name: operands.draw(role) for name, role in program.roles.items()}
    draw = Draw(program, bound, returned=random.random() < 0.5)
    draw = _with_neighbours(random, draw) if random.random() < 0.3 else draw
    return _symbols(random, draw) if random.random() < 0.2 else draw


def draw_near(random: Random, draw: Draw) -> Draw:
    """Return a draw that differs from another in one or two places."""
    for _ in range(random.choice((1, 1, 2))):
        draw = random.choice(MUTATIONS)(random, draw)
    return draw


def draws_with_hints(random: Random, program: DrawProgram) -> list[Draw]:
    """Return a few draws with the numbers that a rule mentions: equal tensors of one dtype."""
    numbers = [hint for hint in program.hints if type(hint) in (int, float)]
    names = [name for name, role in program.roles.items() if _takes_number(role)]
    if not numbers or not names:
        return []
    draws: list[Draw] = []
    combinations = list(islice(product(numbers, repeat=len(names)), 1000))
    chosen = random.sample(combinations, min(len(combinations), HINTED))
    for values, dtype in product(chosen, (torch.float32, random.choice(DTYPES))):
        draw = replace(draw_randomly(random, program), neighbours=())
        alike = {
            name: TensorDraw(dtype, (2, 3), values=draw_values(random)) for name in draw.tensors()
        }
        draws.append(draw.bind(alike | dict(zip(names, map(Constant, values), strict=True))))
    return draws


HINTED = 12
"""How many choices of mentioned numbers are tried first, in float32 and in another dtype."""


def _takes_number(role: ArgumentRole) -> bool:
    is_list = "List" in role.kind or "bool" in role.kind
    is_number = any(kind in role.kind for kind in ("number", "float", "int", "Scalar"))
    return not is_list and (role.name == "other" or is_number) and role.name not in CHOICES


@dataclass(frozen=True, slots=True)
class _Operands:
    """Draws the operands of one program, mostly alike.

    Attributes:
        pool: The sizes of its tensors.
        base: Their usual shape.
        dtype: Their usual dtype.
    """

    random: Random
    pool: Sequence[int]
    base: tuple[int, ...]
    dtype: torch.dtype

    def draw(self, role: ArgumentRole) -> Operand:
        random = self.random
        if "Tensor" not in role.kind:
            return Constant(_constant(random, role, self.base))
        if role.kind.startswith("Optional") and random.random() < 0.3:
            return Constant(None)
        if "List" in role.kind:
            return tuple(self._tensor(role) for _ in range(2))
        numbers = [hint for hint in role.hints if type(hint) in (int, float)]
        if role.name == "other" and random.random() < (0.3 if numbers else 0.15):
            is_hinted = numbers and random.random() < 0.6
            return Constant(random.choice(numbers if is_hinted else SCALARS))  # not a tensor
        return self._tensor(role)

    def _tensor(self, role: ArgumentRole) -> TensorDraw:
        random = self.random
        dtype = random.choice(DTYPES) if random.random() < 0.15 else self.dtype
        values = draw_values(random)
        if role.name in CONDITIONS and random.random() < 0.8:
            dtype = torch.bool
        if role.name in INDICES and random.random() < 0.8:
            dtype, values = torch.int64, tuple(random.choices((0, 1, 2), (4, 2, 1), k=3))
        shape = self._shape(role.rank)
        layout = random.choice(LAYOUTS) if random.random() < 0.4 else "contiguous"
        return TensorDraw(dtype, shape, layout, values, random.choices(PLACES, (8, 1, 1))[0])

    def _shape(self, rank: int | None) -> tuple[int, ...]:
        """Return the base shape, a shape that broadcasts with it, or any shape."""
        random, base = self.random, self.base
        if rank is not None and len(base) != rank and random.random() < 0.8:
            return self._sizes(rank)
        kind = random.random()
        if kind < 0.5:
            return base
        if kind < 0.75:
            kept = base[random.randint(0, len(base)) :]
            return tuple(1 if random.random() < 0.3 else size for size in kept)
        return self._sizes(len(base) if kind < 0.9 else random.randint(0, 3))

    def _sizes(self, count: int) -> tuple[int, ...]:
        return tuple(self.random.choice(self.pool) for _ in range(count))


def _constant(random: Random, role: ArgumentRole, base: tuple[int, ...]) -> object:
    kind = role.kind
    hints = _hints_for(role)
    if hints and random.random() < 0.4:
        return random.choice(hints)
    if role.name in CHOICES:
        return random.choice(CHOICES[role.name])
    if kind.startswith("Optional") and random.random() < 0.3:
        return None
    if "List" in kind:
        return _list(random, role, base)
    if "bool" in kind:
        return random.random() < 0.5
    if "int" in kind:
        return random.choice((0, 1, -1, 2, -2, 3, -3))
    if "number" in kind or "float" in kind or "Scalar" in kind:
        return random.choice(SIZES if role.makes and role.name not in FILLS else SCALARS)
    return None


def _hints_for(role: ArgumentRole) -> list[object]:
    if "List" in role.kind or "bool" in role.kind:
        return []
    if role.name in ("dtype", "memory_format"):
        kinds: tuple[type, ...] = (torch.dtype if role.name == "dtype" else torch.memory_format,)
    elif "number" in role.kind or "float" in role.kind or "Scalar" in role.kind:
        kinds = (int, float)
    else:
        kinds = (int,) if "int" in role.kind else (str,) if "str" in role.kind else ()
    return [hint for hint in role.hints if type(hint) in kinds]


def _list(random: Random, role: ArgumentRole, base: tuple[int, ...]) -> tuple[int, ...]:
    """Return sizes with the element count of the base shape, or dimensions of it."""
    if role.name in ("size", "shape", "sizes"):
        count = math.prod(base)
        first = random.choice([size for size in range(1, count + 1) if count % size == 0] or [0])
        rest = count // first if first else 0
        shuffled = tuple(random.sample(base, len(base)))
        return random.choice(
            (base, shuffled, (count,), (first, rest), (first, -1), (-1,), (1, *base))
        )
    dims = list(range(-len(base), len(base))) or [0]
    if random.random() < 0.4:
        order = random.sample(range(len(base)), len(base))
        return tuple(dim - len(base) if random.random() < 0.2 else dim for dim in order)
    return tuple(random.choice(dims) for _ in range(random.choice((1, 1, 2, 0))))


def _with_neighbours(random: Random, draw: Draw) -> Draw:
    count = random.choice((1, 1, 2))
    return replace(draw, neighbours=tuple(_neighbour(random, draw) for _ in range(count)))


def _neighbour(random: Random, draw: Draw) -> Neighbour:
    count = len(draw.program.calls)
    kind = random.choice(("use", "return", "drop", "write", "write"))
    places: list[str | int] = [*draw.tensors(), *range(count)]
    of = random.choice(places)
    return Neighbour(kind, of, random.randint(of + 1 if isinstance(of, int) else 0, count))


# --- mutations ------------------------------------------------------------------------------------


def with_size(draw: Draw, old: int, new: int) -> Draw:
    """Return a draw with one size in place of another everywhere, lists of sizes included."""

    def change(sizes: Iterable[int]) -> tuple[int, ...]:
        return tuple(new if size == old else size for size in sizes)

    def change_operand(operand: Operand) -> Operand:
        if isinstance(operand, TensorDraw):
            return replace(operand, shape=change(operand.shape))
        if isinstance(operand, tuple):
            return tuple(replace(each, shape=change(each.shape)) for each in operand)
        if isinstance(operand, Constant) and isinstance(operand.value, tuple):
            return Constant(change(cast("tuple[int, ...]", operand.value)))
        return operand

    return draw.bind({name: change_operand(each) for name, each in draw.bound.items()})


def with_dense_layouts(draw: Draw) -> Draw:
    """Return a draw whose operands have `DENSE` layouts."""
    tensors = draw.tensors().items()
    gaps = {name: each for name, each in tensors if each.layout not in DENSE}
    return draw.bind({name: replace(each, layout="contiguous") for name, each in gaps.items()})


def with_other_values(random: Random, draw: Draw) -> Draw:
    """Return a draw of the same graph with other numbers in its inputs."""
    changed = {
        name: replace(each, values=draw_values(random))
        for name, each in draw.tensors().items()
        if each.place != "constant"
    }
    return draw.bind(changed)


def constants_for(random: Random, draw: Draw, name: str) -> list[object]:
    """Return values for an operand other than a tensor."""
    role = draw.program.roles[name]
    if role.name in CHOICES:
        return [*_hints_for(role), *CHOICES[role.name]]
    if role.kind == "bool":
        return [False, True]
    shapes = [tensor.shape for tensor in draw.tensors().values()] or [()]
    constants = [_constant(random, role, random.choice(shapes)) for _ in range(12)]
    return [*_hints_for(role), *constants] if not role.is_tensor else list(SCALARS)


def _resize(random: Random, draw: Draw) -> Draw:
    sizes = [size for tensor in draw.tensors().values() for size in tensor.shape]
    return with_size(draw, random.choice(sizes or [1]), random.choices(SIZES, WEIGHTS)[0])


def _one_tensor(
    change: Callable[[Random, TensorDraw], TensorDraw],
) -> Callable[[Random, Draw], Draw]:
    def apply(random: Random, draw: Draw) -> Draw:
        tensors = draw.tensors()
        if not tensors:
            return draw
        name = random.choice(list(tensors))
        return draw.bind({name: change(random, tensors[name])})

    return apply


def _all_dtypes(random: Random, draw: Draw) -> Draw:
    dtype = random.choice(DTYPES)
    return draw.with_tensors(dtype=dtype)


def _other_shape(random: Random, tensor: TensorDraw) -> TensorDraw:
    """Drop or insert a dimension, reverse them, or set one to size 1."""
    shape = list(tensor.shape)
    where = random.randrange(len(shape) + 1)
    kind = random.choice(["drop", "put", "swap", "one"])
    if kind == "put":
        shape.insert(where, random.choices(SIZES, WEIGHTS)[0])
    elif shape and kind == "drop":
        del shape[min(where, len(shape) - 1)]
    elif shape and kind == "one":
        shape[min(where, len(shape) - 1)] = 1
    else:
        shape.reverse()
    return replace(tensor, shape=tuple(shape))


def _other_layout(random: Random, tensor: TensorDraw) -> TensorDraw:
    return replace(tensor, layout=random.choice(LAYOUTS))


def _other_values(random: Random, tensor: TensorDraw) -> TensorDraw:
    return replace(tensor, values=draw_values(random))


def _other_dtype(random: Random, tensor: TensorDraw) -> TensorDraw:
    return replace(tensor, dtype=random.choice(DTYPES))


def _other_place(random: Random, tensor: TensorDraw) -> TensorDraw:
    return replace(tensor, place=random.choice(PLACES))


def _other_constant(random: Random, draw: Draw) -> Draw:
    names = [name for name, each in draw.bound.items() if isinstance(each, Constant)]
    shapes = [tensor.shape for tensor in draw.tensors().values()] or [()]
    if not names:
        return _one_tensor(_other_values)(random, draw)
    name = random.choice(names)
    role = draw.program.roles[name]
    value = Constant(_constant(random, role, random.choice(shapes)))
    return draw if "Tensor" in role.kind else draw.bind({name: value})


def _repeat(random: Random, draw: Draw) -> Draw:
    """Share one node between two variables, or undo that."""
    tensors = draw.tensors()
    for name, each in draw.bound.items():
        if isinstance(each, Variable):
            known = tensors.get(each.name)
            return draw.bind({name: known}) if known else draw
    if len(tensors) < 2:
        return draw
    one, *_, other = tensors
    return draw.bind({other: Variable(one)})


def _toggle_neighbours(random: Random, draw: Draw) -> Draw:
    return replace(draw, neighbours=()) if draw.neighbours else _with_neighbours(random, draw)


def _toggle_returned(random: Random, draw: Draw) -> Draw:
    return replace(draw, returned=not draw.returned)


def _symbols(random: Random, draw: Draw) -> Draw:
    """Make the sizes symbolic, in `DENSE` layouts, or undo that."""
    grown = random.choice((0, 1, 2))
    return replace(with_dense_layouts(draw), dynamic=not draw.dynamic, grown=grown)


MUTATIONS: tuple[Callable[[Random, Draw], Draw], ...] = (
    *[_one_tensor(_other_values)] * 3,
    _one_tensor(_other_layout),
    _one_tensor(_other_shape),
    _one_tensor(_other_dtype),
    _one_tensor(_other_place),
    *[_all_dtypes] * 2,
    *[_resize] * 2,
    *[_other_constant] * 3,
    _repeat,
    *[_toggle_neighbours] * 2,
    _toggle_returned,
    *[_symbols] * 2,
)
