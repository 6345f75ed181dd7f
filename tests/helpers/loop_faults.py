"""Faults planted into our own code generation: lowering, fusion, memory planning, printing.

A fault is a patch for the time of a test; each has a small program that meets it. `culprit` is what
a bisection must name: a rewrite of a pass (`fuse`), or a kernel (`c:forward.NAME`).
"""

import dataclasses
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest import mock

import torch
from torch import Tensor

from ctk.compiler.codegen.c import functions as c_functions
from ctk.compiler.codegen.c import sweeps as c_sweeps
from ctk.compiler.codegen.triton import source as triton_source
from ctk.compiler.lowering import builder, merge, parts
from ctk.compiler.lowering import fuse as fusion
from ctk.compiler.lowering import memory as planning
from ctk.compiler.lowering.arrays import Array, cast, constant, moved
from ctk.compiler.lowering.ir import Kernel, Load, Program, Sweep, View
from ctk.compiler.lowering.operators import LOWERINGS, reductions
from ctk.compiler.lowering.walk import reads, writes
from ctk.compiler.runtime.input_check import InputCheck
from ctk.compiler.sizes.index import Index, Var, of_atom
from ctk.toolkit.case.case import Case
from ctk.toolkit.case.usercode.program import UserProgram as UserProgram
from ctk.toolkit.importers.program import capture_cases

aten = torch.ops.aten
Patch = AbstractContextManager[object]


@dataclass(frozen=True, slots=True)
class Fault:
    """A wrong piece of code generation.

    Attributes:
        name: Id of the test.
        program: Meets it.
        inputs: Of the program.
        plant: Makes it wrong for a region.
        culprit: The pass or the kernel that must be found and confirmed, without its stage.
        node: A node that must be among those of the culprit.
        config: Of the compile.
        dynamic: The sizes are symbols.
        calls: How many calls the reduced program may have.
    """

    name: str
    program: Callable[..., Any]
    inputs: tuple[Tensor, ...]
    plant: Callable[[], Patch]
    culprit: str
    node: str
    config: dict[str, object] = field(default_factory=lambda: {"codegen": "c"})
    dynamic: bool = False
    calls: int = 1

    def case(self) -> Case:
        """Return the program as a case."""
        name = self.program.__name__
        program = UserProgram(self.program, self.inputs, {}, name, Path(__file__))
        (case,) = capture_cases(program, config=self.config, dynamic=self.dynamic)
        return dataclasses.replace(case)


def _wrapped(owner: object, name: str, wrong: Callable[..., Any]) -> Patch:
    """Put `wrong(original, *args)` in the place of a function."""
    original = getattr(owner, name)
    return mock.patch.object(owner, name, lambda *args, **kw: wrong(original, *args, **kw))


def _lowered(operator: Any, wrong: Callable[..., Any]) -> Patch:
    """Put `wrong(original, *args)` in the place of a lowering."""
    original = LOWERINGS[operator]
    made = {operator: lambda *args, **kw: wrong(original, *args, **kw)}
    return mock.patch.dict(LOWERINGS, made)


def _from_the_end(original: Any, loops: Any, store: Any, at: Any) -> dict[Var, Index]:
    where = original(loops, store, at)
    return {loop: loop.size - 1 - index for loop, index in where.items()}


def _one_more(original: Any, b: Any, x: Array, diagonal: int = 0) -> Array:
    return original(b, x, diagonal + 1)


def _of_any_iteration(original: Any, first: Kernel, second: Kernel, **options: Any) -> Kernel:
    """Merge as if the second read what its own iteration of the first has made."""
    if len(first.stores) != 1:
        return original(first, second, **options)
    (store,) = first.stores
    change = merge.Rewriting(
        change=lambda v: (
            Load(v.buffer, store.index, v.dtype)
            if isinstance(v, Load) and v.buffer == store.buffer
            else None
        )
    )
    sweeps = (Sweep(s.inner, tuple(map(change.statement, s.statements))) for s in second.sweeps)
    moved = dataclasses.replace(second, sweeps=tuple(sweeps), outer=first.outer)
    return original(first, moved, **options)


def _first_uses(_: Any, program: Program) -> dict[int, set[str]]:
    """Return the first uses of buffers where the last are asked for."""
    found: dict[str, int] = {}
    for place, step in enumerate(program.steps):
        if isinstance(step, Kernel):
            for name in reads(step) | writes(step):
                found.setdefault(name, place)
    return {place: {n for n in found if found[n] == place} for place in set(found.values())}


def _from_the_last(original: Any, b: Any, x: Array, dim: int, **options: Any) -> Array:
    """Run up from the last element, not from the first."""

    def turned(array: Array) -> Array:
        last = array.shape[dim] - 1
        return moved(array, array.shape, lambda at: [*at[:dim], last - at[dim], *at[dim + 1 :]])

    return turned(original(b, turned(x), dim, **options))


def _narrow_sum(original: Any, b: Any, x: Array, dtype: Any) -> Array:
    return original(b, cast(x, torch.int16), torch.int16)


def _whole_vectors(original: Any, self: Any, var: Any, **options: Any) -> Any:
    """Print a loop that stops at the last whole vector."""
    if options.get("start") is not None and "simd" in options.get("pragma", ""):
        options["stop"] = f"({options['stop']}) / 8 * 8"
    return original(self, var, **options)


def _lost_updates(original: Any, store: Any, target: str, value: str) -> str:
    """Write without what another iteration has written meanwhile."""
    return value


def _row_major(original: Any, self: Any, view: View) -> Array:
    """Read a view as if it were dense."""
    if view.shape == self.buffers[view.buffer].shape:
        return original(self, view)
    return original(self, dataclasses.replace(view, strides=builder.row_major(view.shape)))


def _raises(original: Any, *args: Any) -> Array:
    raise RuntimeError("planted: cannot lower this")


def _hinted(original: Any, *args: Any) -> Array:
    """Return a count as it was in some earlier trace."""
    found = original(*args)
    return constant(4, found.dtype, found.shape)


def _shorter_mask(original: Any, axis: Any, body: Any, start: str) -> list[str]:
    lines = original(axis, body, start)
    if not axis.name.startswith("r"):
        return lines
    return [line + " - 1" if line.startswith(f"{axis.mask} = ") else line for line in lines]


def _from_its_end(original: Any, *args: Any) -> Kernel:
    """Write a part from its last column to its first."""
    made = original(*args)
    last, (store,) = made.outer[-1], made.stores
    index = store.index.substitute({last: last.size - 1 - of_atom(last)})
    return dataclasses.replace(
        made, sweeps=(Sweep((), (dataclasses.replace(store, index=index),)),)
    )


def _of_each_other(original: Any, self: Any, *tensors: Tensor) -> list[Tensor]:
    """Return the fitted inputs in another order."""
    return original(self, *tensors)[::-1]


def _first_column(bits: str) -> str:
    """Return a transpose that reads one column again and again behind the last whole square."""
    text = c_functions.FUNCTIONS[f"transpose_singly_{bits}"]
    return text.replace("from[row*step + column];", "from[row*step];")


def scaled(x: Tensor) -> Tensor:
    return (x @ x.t() * 2.0).relu() @ x


def masked(x: Tensor) -> Tensor:
    return torch.tril(x.sin()) + 1.0


def turned(x: Tensor) -> tuple[Tensor, Tensor]:
    made = x.exp()
    return made, made.flip(0).sin() @ x.t()


def shared(x: Tensor) -> Tensor:
    weights = x.sigmoid()
    first = weights.sum(0) @ x
    waves = (x @ x).sin()
    second = waves.sum(0) @ x
    return weights * first + waves * second


def epilogue(x: Tensor) -> Tensor:
    product = x.tanh() @ x
    return product * (product.sin() @ x)


def running(x: Tensor) -> Tensor:
    return (x * 0.5).cumsum(1).tanh()


def counted(x: Tensor) -> Tensor:
    return (x + 1).sum(-1) * 2


def largest(x: Tensor) -> Tensor:
    return (x * 3.0).amax(-1) + 1.0


def added(x: Tensor, index: Tensor) -> Tensor:
    return torch.zeros(4).index_add(0, index, x.abs()) * 2.0


def grown(x: Tensor) -> Tensor:
    return (x.tanh() + 1.0).exp() * 3.0


def transposed(x: Tensor, y: Tensor) -> Tensor:
    return x.t() * y + 1.0


def halves(x: Tensor) -> Tensor:
    return torch.cat((x.softmax(1), x), 1) @ torch.arange(20.0).view(10, 2)


def averaged(x: Tensor) -> Tensor:
    return x.abs().mean(0) - 0.5


def in_triton(x: Tensor) -> Tensor:
    return (x * 2.0).sum(-1).exp()


def numbers(*shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(0))


FAULTS = (
    Fault(
        "index arithmetic", scaled, (numbers(6, 5),),
        lambda: _wrapped(merge, "position_of", _from_the_end),
        "fuse", "mul", calls=2,
    ),
    Fault(
        "mask", masked, (numbers(6, 6),),
        lambda: _lowered(aten.tril.default, _one_more),
        "c:forward.add", "tril",
    ),
    Fault(
        "a lost dependency", turned, (numbers(6, 5),),
        lambda: _wrapped(fusion, "merge", _of_any_iteration),
        "fuse", "exp", calls=2,
    ),
    Fault(
        "a wrong reuse of a buffer", shared, (numbers(6, 6) / 3,),
        lambda: _wrapped(planning, "_last_uses", _first_uses),
        "plan_memory", "sin", calls=8,
    ),
    Fault(
        "an epilogue in a product that is still read", epilogue, (numbers(6, 6) / 3,),
        lambda: _wrapped(planning, "_last_uses", _first_uses),
        "plan_memory", "sin", calls=4,
    ),
    Fault(
        "reduction order", running, (numbers(6, 5),),
        lambda: _lowered(aten.cumsum.default, _from_the_last),
        "c:forward.tanh", "cumsum",
    ),
    Fault(
        "dtype of an accumulator", counted, (torch.arange(60000, dtype=torch.int32).view(6, -1),),
        lambda: _wrapped(reductions, "_summed", _narrow_sum),
        "c:forward.mul", "sum_1",
    ),
    Fault(
        "vector tail", largest, (numbers(4, 21).abs().cumsum(1),),
        lambda: _wrapped(c_sweeps.SweepPrinter, "loop", _whole_vectors),
        "c:forward.add", "amax",
    ),
    Fault(
        "race", added, (numbers(9), torch.arange(9) % 4),
        lambda: _wrapped(c_sweeps, "_combined", _lost_updates),
        "c:forward.index_add.scattered", "index_add",
    ),
    Fault(
        "ULP of a function", grown, (numbers(5, 7),),
        lambda: mock.patch.dict(
            c_functions.FUNCTIONS,
            {"exp_f32": "FN float exp_f32(float a) { return expf(a) * 1.0005f; }"},
        ),
        "c:forward.mul", "exp",
    ),
    Fault(
        "stride", transposed, (numbers(6, 5), numbers(5, 6)),
        lambda: _wrapped(builder.Builder, "read", _row_major),
        "c:forward.add", "mul", calls=2,
    ),
    Fault(
        "a part in another place", halves, (numbers(6, 5),),
        lambda: _wrapped(parts, "_part", _from_its_end),
        "fuse", "cat", calls=2,
    ),
    Fault(
        "a tile that is transposed wrongly", transposed, (numbers(41, 33), numbers(33, 41)),
        lambda: mock.patch.dict(
            c_functions.FUNCTIONS, {"transpose_singly_32": _first_column("32")}
        ),
        "c:forward.add", "mul", calls=2,
    ),
    Fault(
        "inputs that change places", transposed, (numbers(6, 6), numbers(6, 6).exp()),
        lambda: _wrapped(InputCheck, "fit", _of_each_other),
        "c:forward.add", "mul", calls=2,
    ),
    Fault(
        "symbolic size", averaged, (numbers(6, 5),),
        lambda: _wrapped(reductions, "count_of", _hinted),
        "c:forward.sub_3", "mean", dynamic=True,
    ),
    Fault(
        "a lowering raises", grown, (numbers(5, 7),),
        lambda: _lowered(aten.exp.default, _raises),
        "lower", "exp",
    ),
    Fault(
        "Triton mask", in_triton, (numbers(6, 5).abs(),),
        lambda: _wrapped(triton_source, "_axis_lines", _shorter_mask),
        "triton:forward.exp", "sum_1",
        config={"codegen": "triton", "passes": {"triton": {"interpret": True}}},
    ),
)  # fmt: skip
