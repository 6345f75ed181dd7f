"""Values that are printed as a whole, because that takes fewer instructions.

1 + erf(x), 1 + tanh(x)         `device.one_plus_erf`; not in exact kernels
position < position             in 32 bits where positions are
philox(seed, a + x // 4, x % 4) each counter once, for the four neighbours that share it
float32(philox(...) >> n)       converted from 32 bits
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from ctk.compiler.codegen.triton.forms import (
    compares_positions,
    counter_of_fours,
    one_plus,
    word_as_float,
)
from ctk.compiler.codegen.triton.layout import Axis
from ctk.compiler.codegen.triton.ops import op_text
from ctk.compiler.codegen.triton.printed_values import Shown, union
from ctk.compiler.lowering.ir import Op, Position
from ctk.compiler.sizes.index import Atom, Index, Var, of_atom

if TYPE_CHECKING:
    from ctk.compiler.codegen.triton.body import Body


def special_form(body: Body, op: Op) -> Shown | None:
    """Return an operation printed as a whole; None if it has no such form."""
    if compares_positions(op):
        return _compared(body, op)
    return _curve(body, op) or _random(body, op)


def _compared(body: Body, op: Op) -> Shown:
    parts = [body.index(arg.index) for arg in op.args if isinstance(arg, Position)]
    axes, buffers = union(parts)
    if not axes:
        parts = [replace(part, text=f"tl.full([], {part.text}, tl.int64)") for part in parts]
    text = op_text(op, [f"({each.text})" if " " in each.text else each.text for each in parts])
    return body.variable(text, axes, op.origin, buffers=buffers)


def _curve(body: Body, op: Op) -> Shown | None:
    curve = one_plus(op) if body.is_loose(op) else None
    if curve is None:
        return None
    arg = body.shown(curve.args[0])
    text = f"device.one_plus_{curve.name}({arg.text})"
    return body.variable(text, arg.axes, op.origin, buffers=arg.buffers)


def _random(body: Body, op: Op) -> Shown | None:
    float_of = word_as_float(op)
    if float_of is not None:
        word = _word(body, float_of[0])
        text = f"({word.text} >> {float_of[1]}).to(tl.int32).to(tl.float32)"
    elif op.name == "philox":
        word = _word(body, op)
        text = f"{word.text}.to(tl.int64)"
    else:
        return None
    return body.variable(text, word.axes, op.origin, buffers=word.buffers)


def _word(body: Body, op: Op) -> Shown:
    """Return 32 random bits, as uint32."""
    key = "word", body.number(op)
    found = body.recall(key)
    if found is not None:
        return found
    seed = body.shown(op.args[0])
    axis = body.layout.axes[-1]
    fours = counter_of_fours(op, axis.index) if axis.block % 4 == 0 else None
    if fours is not None:
        return body.keep(key, _words_of_fours(body, op, seed, axis, *fours))
    parts = [seed, *map(body.value, op.args[1:])]
    axes, buffers = union(parts)
    text = f"device.philox({', '.join(part.text for part in parts)})"
    return body.keep(key, body.variable(text, axes, op.origin, buffers=buffers))


def _words_of_fours(
    body: Body, op: Op, seed: Shown, axis: Axis, counter: Index, quarter: Atom
) -> Shown:
    name = f"{axis.name}quarter"
    own = Var(name, axis.numel)
    body.number_axis(name, axis)
    at = body.index(counter.replace(lambda atom: of_atom(own) if atom == quarter else None))
    text = f"device.philox_of_fours({seed.text}, {at.text})"
    return body.variable(text, at.axes | seed.axes, op.origin, buffers=seed.buffers)
