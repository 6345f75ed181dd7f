"""Compute products and convolutions of dequantized integers by oneDNN, with the integers.

Rules, `x` being integers with one scale for all and `w` constant 8-bit integers:
    1. addmm(b, dequantize(x), t(dequantize(w))) -> qlinear(x, pack(w), b), the same with `mm`
       with zero points z of `w`, scales s: less sum(dequantize(x)) * s * z, in float32
    2. convolution(dequantize(x), dequantize(w), b) -> qconv(x, pack(w), b), clone(it) if the
       result had its channels first
    3. _int_mm(x, t(w)) -> convert(qlinear(x, pack(w))), for `w` of at least 4 Mi numbers (with
       fewer, torch's product took as long), if its readers convert it to floats
The operators are `onednn::qlinear_pointwise` and `onednn::qconv_pointwise`, with scales and zero
points. `pack` stays a call of the graph, computed once by code generation (`codegen/packing.py`):
its result cannot be stored, and plain weights crash these operators.
An `x` of int8 becomes uint8, 128 higher with its zero point: without AMX, oneDNN has no kernel but
its reference for int8, which took hundreds of times as long.
Preconditions: a CPU with oneDNN; `x` is uint8, or int8 for products, its scale a number (static)
or, for products, a tensor (dynamic); `w` is int8, in convolutions symmetric, with one scale for
each output channel or for all; the result is float32, or bfloat16, into which both were rounded; no
size is known to be 0, and the sizes of a convolution are known; two or three dimensions, not
transposed. On CPUs without VNNI oneDNN adds products in pairs of 16 bits, which saturate. There the
largest integer that the quantize of `x` may give, times the two largest weights of a channel, must
fit: [0, 127] with any weights (`reduce_range`), or [0, 255] with weights from -64 to 64.
Reassociates: sums of integers are exact, and scaled once; the program scales, and then sums, so
that a later quantize may give a neighbouring integer.

Source: `_register_quantization_weight_pack_pass` of
`torch/_inductor/fx_passes/quantization.py` matches some thirty fixed chains, leaves saturation to
the quantizer, and hands zero points of weights to kernels that ignore them; this pass looks through
copies and transposes, and checks the numbers.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import cast

import torch
from torch.fx import Node

from ctk.compiler.fx.constants import constant_value
from ctk.compiler.fx.properties import is_constant, is_written_between, mutated_bases
from ctk.compiler.fx.types import (
    dense_strides,
    is_dense,
    same_sizes,
    tensor_of,
    type_text,
    value_of,
)
from ctk.compiler.passes.freezing.quantized import (
    CONVERSIONS,
    Integers,
    bounds_of,
    integers_of,
    plain,
    skip_transpose,
)
from ctk.compiler.patterns import Match, Op, Rule, RuleTable, Var, apply_rules
from ctk.compiler.patterns.solve import matches
from ctk.compiler.rewriting.base import Example, Pass
from ctk.compiler.rewriting.rewriter import Rewriter
from ctk.compiler.torch_compat.fake import fake_tensors as fake
from ctk.compiler.torch_compat.inductor import onednn

aten = torch.ops.aten
_SETTINGS = ("stride", "padding", "dilation", "transposed", "output_padding", "groups")
_KEPT = ("stride", "padding", "dilation", "groups")
LARGE, _MOST_INPUTS = 1 << 22, 1 << 16
"""Rule 3: the least numbers of a weight, and the inputs whose sums fit 32 bits."""

_INT16, _FLOAT32 = (1 << 15) - 1, torch.finfo(torch.float32).max


class PrepackQuantized(Pass):
    """Compute products and convolutions of dequantized integers by oneDNN, with the integers."""

    name = "prepack_quantized"
    numerics = "reassociates"

    def run(self, rewriter: Rewriter) -> None:
        if not any(base.op == "get_attr" for base in mutated_bases(rewriter.graph)):
            apply_rules(rewriter, RULES)
            _pack_products_of_integers(rewriter)


@dataclass(frozen=True, slots=True)
class _Layer:
    """The operands of a layer.

    Attributes:
        x: Its input.
        w: Its weight; channels of outputs along `w.axis`, if it has scales for them.
        is_other: Whether the weight of a product is [inputs, outputs].
    """

    x: Integers
    w: Integers
    is_other: bool


def _layer_of(match: Match) -> _Layer | str:
    """Return the operands of a layer, or why oneDNN cannot take it."""
    root, result = match.root, tensor_of(match.root)
    if not onednn.runs_quantized():
        return "torch has no oneDNN here that computes with integers"
    if result is None or result.device.type != "cpu":
        return f"{root} is not known to be on a CPU"
    if result.dtype not in (torch.float32, torch.bfloat16):
        return f"{root} is {type_text(result)}, neither float32 nor bfloat16"
    x = integers_of(plain(match.bound["x"], result.dtype))
    if x is None:
        return f"the operand {match.bound['x']} is not dequantized"
    is_product = root.target is not aten.convolution.default
    if is_product:
        found, is_other = skip_transpose(match.bound["w"], result.dtype)
        is_other = not is_other
    else:
        found, is_other = plain(match.bound["w"], result.dtype), False
    w = integers_of(found)
    if w is None:
        return f"the weight {match.bound['w']} is not dequantized"
    if is_written_between(x.node, root):
        return f"something is written between {x.node} and {root}"
    layer = _Layer(x, w, is_other)
    return (
        _not_input(x, is_product=is_product)
        or _not_weight(layer, has_zeros=not is_product or result.dtype is not torch.float32)
        or _not_bias(match, result)
        or _too_large(layer)
        or layer
    )


def _not_input(x: Integers, *, is_product: bool) -> str | None:
    tensor, scale, zero = tensor_of(x.node), x.scale, x.zero_point
    kinds = (torch.uint8, torch.int8) if is_product else (torch.uint8,)
    if tensor is None or tensor.dtype not in kinds:
        return f"{x.node} is not of {' or '.join(map(str, kinds))}"
    if x.axis is not None:
        return f"{x.node} has a scale for each channel"
    if isinstance(scale, float) and isinstance(zero, int):
        info = torch.iinfo(tensor.dtype)
        is_fine = 0 < scale <= _FLOAT32 and info.min <= zero <= info.max
        return None if is_fine else f"{x.node} has scale {scale} and zero point {zero}"
    pair = tensor_of(scale), tensor_of(zero)
    if not is_product or any(each is None or each.numel() != 1 for each in pair):
        return f"the scale of {x.node} is not a number"
    return None


def _not_weight(layer: _Layer, *, has_zeros: bool) -> str | None:
    w, rows = layer.w, 1 if layer.is_other else 0
    tensor = tensor_of(w.node)
    if tensor is None or tensor.dtype != torch.int8 or not is_constant(w.node):
        return f"the weight {w.node} is not a constant of int8"
    if tensor.numel() == 0:
        return f"the weight {w.node} is empty"
    if w.axis not in (None, rows):
        return f"the weight {w.node} has scales along dimension {w.axis}, not for its outputs"
    parts = [each for each in (w.scale, w.zero_point) if isinstance(each, Node)]
    if not all(map(is_constant, parts)):
        return f"the scales of {w.node} are no constants"
    if has_zeros and any(_numbers(w.zero_point)):
        return f"the weight {w.node} has zero points other than 0"
    if len(_numbers(w.scale)) not in (1, tensor.shape[rows]):
        return f"the weight {w.node} has another number of scales than of outputs"
    if not all(0 < scale <= _FLOAT32 for scale in _numbers(w.scale)):
        return f"the weight {w.node} has scales that are not positive and finite"
    return None


def _numbers(value: object) -> list[float]:
    """Return the numbers of a constant tensor, or the number that it is."""
    if not isinstance(value, Node):
        return [float(value)] if isinstance(value, (int, float)) else []
    with fake.real_compute():
        return cast("list[float]", constant_value(value).reshape(-1).double().tolist())


def _not_bias(match: Match, result: torch.Tensor) -> str | None:
    bias = match.bound.get("b")
    row = tensor_of(bias)
    if bias is not None and (row is None or row.dim() != 1 or row.dtype != result.dtype):
        return f"the bias {bias} is not a row of {result.dtype}"
    if row is not None and not same_sizes(row.shape, result.shape[1:2]):
        return f"the bias {bias} is broadcast"
    return None


def _too_large(layer: _Layer) -> str | None:
    """Return where sums of two products may saturate, or all of them overflow float32."""
    w, low_high = layer.w.node, bounds_of(layer.x.node)
    with fake.real_compute():
        sizes = constant_value(w).to(torch.int32).abs()
        sizes = (sizes.t() if layer.is_other else sizes).flatten(1)
        pair = int(sizes.topk(min(2, sizes.shape[1])).values.sum(1).max())
        row = int(sizes.sum(1).max())
    tensor = tensor_of(layer.x.node)
    shift = 128 if tensor is not None and tensor.dtype is torch.int8 else 0  # as `unsigned` does
    reach = low_high[1] + shift
    if onednn.adds_pairs_in_16_bits() and reach * pair > _INT16:
        return (
            f"sums of two products may pass 16 bits, where this CPU without VNNI saturates: "
            f"{reach} times two weights of {w} with sum {pair}; quantize activations to [0, 127] "
            "(reduce_range), or weights to [-64, 63]"
        )
    scale = layer.x.scale if isinstance(layer.x.scale, float) else 1.0
    if row * 512 * scale * max(_numbers(layer.w.scale)) > _FLOAT32:
        return f"sums with {w} may exceed the range of float32"
    return None


def _may_be_product(match: Match) -> str | None:
    layer = _layer_of(match)
    if isinstance(layer, str):
        return layer
    result = tensor_of(match.root)
    assert result is not None  # _layer_of has looked
    if any(size == 0 for size in result.shape if not fake.is_symbolic(size)):
        return f"{match.root} is empty"
    if not same_sizes(result.stride(), (result.shape[1], 1)):
        return f"{match.root} has other strides than oneDNN's"
    return None


def _may_be_convolution(match: Match) -> str | None:
    layer = _layer_of(match)
    if isinstance(layer, str):
        return layer
    result, x = tensor_of(match.root), tensor_of(layer.x.node)
    assert result is not None  # _layer_of has looked
    assert x is not None
    if match.bound["transposed"] is not False:
        return "the convolution is transposed"
    if result.dim() not in (4, 5) or x.dim() != result.dim():
        return f"{match.root} is neither of two nor of three dimensions"
    sizes = (*result.shape, *x.shape)
    if any(fake.is_symbolic(size) or size == 0 for size in sizes):
        return f"{match.root} has sizes that are not known, or 0"
    counts = [len(cast("list[int]", match.bound[name])) for name in _KEPT[:3]]
    if counts != [result.dim() - 2] * 3:
        return "stride, padding and dilation are not written for each dimension"
    if list(result.stride()) not in (dense_strides(result.shape), _channels_last(result)):
        return f"{match.root} has neither its channels last nor first"
    return None


def _channels_last(tensor: torch.Tensor) -> list[int]:
    formats = {4: torch.channels_last, 5: torch.channels_last_3d}
    wanted = torch.empty(tensor.shape, device="meta").to(memory_format=formats[tensor.dim()])
    return list(wanted.stride())


@dataclass(frozen=True, slots=True)
class _Packing:
    """Inserts a layer of oneDNN in front of the layer that it replaces."""

    call: Callable[..., Node]
    match: Match
    layer: _Layer

    def dense(self, node: Node) -> Node:
        """A constant without gaps in memory: oneDNN reads some by their place alone."""
        tensor = cast("torch.Tensor", tensor_of(node))
        return node if is_dense(tensor) else self.copy(node)

    def copy(self, node: Node) -> Node:
        return self.call(aten.clone.default, node, memory_format=torch.contiguous_format)

    def rows(self) -> Node:
        """The weight, outputs first."""
        w = self.layer.w.node
        return self.dense(self.call(aten.t.default, w) if self.layer.is_other else w)

    def scales(self) -> Node:
        """The scales of the weight, a row of float32."""
        scale = self.layer.w.scale
        if not isinstance(scale, Node):
            one = (self.layer.w.node, [1], scale)
            return self.call(aten.new_full.default, *one, dtype=torch.float32)
        row = self.call(aten.reshape.default, scale, [-1])
        return self.dense(self.call(aten._to_copy.default, row, dtype=torch.float32))

    def zeros(self, scales: Node) -> Node:
        count = cast("torch.Tensor", tensor_of(scales)).shape[0]
        return self.call(aten.new_full.default, self.layer.w.node, [count], 0, dtype=torch.int64)

    def bias(self) -> Node | None:
        bias = self.match.bound.get("b")
        row = tensor_of(bias)
        if row is None or not isinstance(bias, Node):
            return None
        if row.dtype is not torch.float32:
            bias = self.call(aten._to_copy.default, bias, dtype=torch.float32)
        return self.dense(bias)

    def unsigned(self) -> tuple[Node, object, object]:
        """The input as uint8, its scale and its zero point."""
        x = self.layer.x
        zero = x.zero_point
        if cast("torch.Tensor", tensor_of(x.node)).dtype is torch.uint8:
            return x.node, x.scale, zero
        if isinstance(zero, Node):
            wide = self.call(aten._to_copy.default, zero, dtype=torch.int64)
            zero = self.call(aten.add.Tensor, wide, 128)
        else:
            zero = cast("int", zero) + 128
        wide = self.call(aten._to_copy.default, x.node, dtype=torch.int16)
        higher = self.call(aten.add.Tensor, wide, 128)
        return self.call(aten._to_copy.default, higher, dtype=torch.uint8), x.scale, zero

    def packed_rows(self) -> Node:
        rows = self.rows()
        columns = self.call(aten.t.default, rows)
        packed = self.packed(onednn.pack_qlinear(), rows, columns, None)
        columns.graph.erase_node(columns)
        return packed

    def without_zeros(self, made: Node, scales: Node) -> Node:
        """The result less the product with the zero points of the weight, one for each output."""
        sums = self.call(aten.sum.dim_IntList, self.match.bound["x"], [1], True)
        row = self.call(aten.mul.Tensor, scales, self.layer.w.zero_point)
        return self.call(aten.sub.Tensor, made, self.call(aten.mul.Tensor, sums, row))

    def packed(self, target: object, rows: Node, like: Node, *args: object) -> Node:
        """A packed weight, recorded as a tensor of the type of another node: torch has no rule."""
        packed = self.call(target, rows, *args)
        packed.meta["val"] = value_of(like)
        return packed

    def ending(self) -> tuple[object, ...]:
        """No quantization of the result, and no operator behind it."""
        result = cast("torch.Tensor", tensor_of(self.match.root))
        return 1.0, 0, result.dtype, "none", [], ""


def _product(rewriter: Rewriter, match: Match) -> Node:
    layer = cast("_Layer", _layer_of(match))
    packing, x = _Packing(rewriter.inserter(before=match.root), match, layer), layer.x
    packed, scales = packing.packed_rows(), packing.scales()
    is_static = isinstance(x.scale, float)
    target = onednn.qlinear() if is_static else onednn.qlinear_dynamic()
    given = (*packing.unsigned(), packed, scales, packing.zeros(scales), packing.bias())
    made = packing.call(target, *given, *packing.ending())
    return packing.without_zeros(made, scales) if any(_numbers(layer.w.zero_point)) else made


def _convolution(rewriter: Rewriter, match: Match) -> Node:
    layer = cast("_Layer", _layer_of(match))
    packing, x = _Packing(rewriter.inserter(before=match.root), match, layer), layer.x
    rows = packing.rows()
    settings = [match.bound[name] for name in _KEPT]
    scales, shape = packing.scales(), list(cast("torch.Tensor", tensor_of(x.node)).shape)
    more = (scales, x.scale, x.zero_point, *settings, shape)
    packed = packing.packed(onednn.pack_qconvolution(), rows, rows, *more)
    given = (x.node, x.scale, x.zero_point, packed, scales, packing.zeros(scales), packing.bias())
    made = packing.call(onednn.qconvolution(), *given, *settings, *packing.ending())
    old, new = (cast("torch.Tensor", tensor_of(each)) for each in (match.root, made))
    return made if same_sizes(old.stride(), new.stride()) else packing.copy(made)


def _integers_of_product(match: Match) -> _Layer | str:
    """Rule 3: return the operands of a product of integers, or why oneDNN cannot take it."""
    root, x = match.root, match.bound["x"]
    types = [each for each in map(tensor_of, (root, *root.args)) if each is not None]
    sizes = [size for each in types for size in each.shape]
    if not onednn.runs_quantized() or len(types) < 3 or types[0].device.type != "cpu":
        return "torch has no oneDNN here that computes with integers"
    if any(fake.is_symbolic(size) or size == 0 for size in sizes):
        return f"{root} has sizes that are not known, or 0"
    weight, is_other = skip_transpose(match.bound["w"], torch.int8)
    if not isinstance(weight, Node) or not isinstance(x, Node) or not is_constant(weight):
        return f"{weight} is not a constant"
    if types[2].numel() < LARGE or types[2].shape[0] > _MOST_INPUTS:
        return f"{weight} has {types[2].numel()} numbers, where oneDNN is not faster"
    if not all(map(_is_to_float, root.users)):
        return f"{root} is read as integers"
    layer = _Layer(Integers(x, 1.0, 0, None), Integers(weight, 1.0, 0, None), not is_other)
    return _too_large(layer) or layer


def _is_to_float(user: Node) -> bool:
    converted = tensor_of(user)
    if converted is None or user.target not in CONVERSIONS:
        return False
    return converted.dtype in (torch.float32, torch.bfloat16)


def _pack_products_of_integers(rewriter: Rewriter) -> None:
    """Rule 3, outside the table: `ctk verify-rules` draws no weights as large."""
    for node in rewriter.nodes():
        for match in matches(_INT_MM, node):
            layer = _integers_of_product(match)
            if isinstance(layer, _Layer):
                make = partial(_product_of_integers, rewriter, match, layer)
                rewriter.replace_by("_int_mm(x, integers) -> qlinear", [node], make)


def _product_of_integers(rewriter: Rewriter, match: Match, layer: _Layer) -> Node:
    packing = _Packing(rewriter.inserter(before=match.root), match, layer)
    packed, one = packing.packed_rows(), packing.scales()
    given = (*packing.unsigned(), packed, one, packing.zeros(one), None)
    made = packing.call(onednn.qlinear(), *given, 1.0, 0, torch.float32, "none", [], "")
    return packing.call(aten._to_copy.default, made, dtype=torch.int32)


_X, _W, _B = Var("x"), Var("w"), Var("b")
_INT_MM = Op(aten._int_mm.default, (_X, _W))
RULES = RuleTable(
    Rule(
        "convolution(dequantize, dequantize) -> qconv",
        Op(aten.convolution.default, (_X, _W, _B, *map(Var, _SETTINGS))),
        _convolution,
        _may_be_convolution,
    ),
    Rule(
        "addmm(b, dequantize, dequantize) -> qlinear",
        Op(aten.addmm.default, (_B, _X, _W)),
        _product,
        _may_be_product,
    ),
    Rule(
        "mm(dequantize, dequantize) -> qlinear",
        Op(aten.mm.default, (_X, _W)),
        _product,
        _may_be_product,
    ),
)


def examples() -> list[Example]:
    """Return programs that the pass changes: one for each rule."""
    library = onednn.quantized_decomposed()
    per_tensor, per_channel = (
        library.dequantize_per_tensor.default,
        library.dequantize_per_channel.default,
    )

    def read(x: torch.Tensor) -> torch.Tensor:
        return per_tensor(x, 0.5, 3, 0, 127, torch.uint8)

    def weight(w: torch.Tensor, s: torch.Tensor) -> torch.Tensor:
        return per_channel(w, s, None, 0, -127, 127, torch.int8)

    def constant(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
        return torch.nn.Parameter(torch.ones(shape, dtype=dtype), requires_grad=False)

    x, w, s, b = torch.ones(2, 3).byte(), constant(4, 3, dtype=torch.int8), constant(4), constant(4)
    image, kernel = torch.ones(1, 3, 4, 4).byte(), constant(4, 3, 2, 2, dtype=torch.int8)
    plain = ([1, 1], [1, 1], [1, 1], False, [0, 0], 1)
    return [
        (lambda x, w, s: torch.mm(read(x), weight(w, s).t()), (x, w, s)),
        (lambda x, w, s, b: torch.addmm(b, read(x), weight(w, s).t()), (x, w, s, b)),
        (
            lambda x, w, s, b: aten.convolution.default(read(x), weight(w, s), b, *plain),
            (image, kernel, s, b),
        ),
    ]


PASS = PrepackQuantized()
