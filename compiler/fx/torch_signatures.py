"""Signatures of the torch functions without writes that `torch_calls` knows (torch 2.11, 2.13)."""

import ast
import operator
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache

import torch
import torch.nn.functional as F

Function = Callable[..., object]

_OF_TORCH = """
    relu(input) sigmoid(input) tanh(input) exp(input) log(input) sin(input) cos(input) sqrt(input)
    rsqrt(input) abs(input) neg(input) reciprocal(input) square(input) erf(input) floor(input)
    ceil(input) sign(input) pow(input, exponent) maximum(input, other) minimum(input, other)
    add(input, other, *, alpha=1) sub(input, other, *, alpha=1) mul(input, other)
    div(input, other, *, rounding_mode=None) matmul(input, other) mm(input, mat2) bmm(input, mat2)
    permute(input, *dims) transpose(input, dim0, dim1) t(input) reshape(input, *shape)
    flatten(input, start_dim=0, end_dim=-1) squeeze(input, dim) unsqueeze(input, dim)
    cat(tensors, dim=0) stack(tensors, dim=0) unbind(input, dim=0) chunk(input, chunks, dim=0)
    split(tensor, split_size_or_sections, dim=0) clone(input, *, memory_format=None)
    sum(input, dim, keepdim=False, *, dtype=None) mean(input, dim, keepdim=False, *, dtype=None)
    softmax(input, dim, dtype=None) log_softmax(input, dim, dtype=None)
    conv1d(input, weight, bias=None, stride=1, padding=0, dilation=1, groups=1)
    conv2d(input, weight, bias=None, stride=1, padding=0, dilation=1, groups=1)
    conv3d(input, weight, bias=None, stride=1, padding=0, dilation=1, groups=1)
"""
"""Functions of `torch`; a method of that name means the same."""

_OF_FUNCTIONAL = """
    linear(input, weight, bias=None) silu(input, inplace=False) gelu(input, *, approximate='none')
    batch_norm(input, running_mean, running_var, weight=None, bias=None, training=False,
        momentum=0.1, eps=1e-05)
"""
"""Functions that only `torch.nn.functional` has."""

_ALSO: tuple[tuple[Function, Function, str], ...] = (
    (F.relu, torch.relu, "(input, inplace=False)"),
    (F.sigmoid, torch.sigmoid, "(input)"),
    (F.tanh, torch.tanh, "(input)"),
    (F.softmax, torch.softmax, "(input, dim, _stacklevel=3, dtype=None)"),
    (F.log_softmax, torch.log_softmax, "(input, dim, _stacklevel=3, dtype=None)"),
    (torch.concat, torch.cat, "(tensors, dim=0)"),
    (torch.concatenate, torch.cat, "(tensors, dim=0)"),
    (torch.swapaxes, torch.transpose, "(input, axis0, axis1)"),
    (torch.swapdims, torch.transpose, "(input, dim0, dim1)"),
    (operator.add, torch.add, "(input, other)"),
    (operator.sub, torch.sub, "(input, other)"),
    (operator.mul, torch.mul, "(input, other)"),
    (operator.truediv, torch.div, "(input, other)"),
    (operator.pow, torch.pow, "(input, exponent)"),
    (operator.neg, torch.neg, "(input)"),
    (operator.matmul, torch.matmul, "(input, other)"),
)
"""Other names of a function, and the arguments that they take."""

ALIASES: Mapping[str, str] = {
    "self": "input",
    "x": "input",
    "x1": "input",
    "x2": "other",
    "axis": "dim",
    "keepdims": "keepdim",
    "axis0": "dim0",
    "axis1": "dim1",
    "split_size": "split_size_or_sections",
}
"""Names that torch takes for an argument besides its own."""


@dataclass(frozen=True, slots=True)
class TorchSignature:
    """Arguments of a function; variadic if a method takes the second one's items one by one."""

    function: Function
    names: tuple[str, ...]
    named: tuple[str, ...]
    defaults: Mapping[str, object]
    is_variadic: bool


@cache
def functions() -> Mapping[object, TorchSignature]:
    """Return the signature of each function that programs call, by the function."""
    found: dict[object, TorchSignature]
    found = {
        getattr(torch, n): _parse(getattr(torch, n), a) for n, a in _list_signatures(_OF_TORCH)
    }
    found |= {getattr(F, n): _parse(getattr(F, n), a) for n, a in _list_signatures(_OF_FUNCTIONAL)}
    found |= {also: _parse(meant, arguments) for also, meant, arguments in _ALSO}
    return found


@cache
def methods() -> Mapping[str, TorchSignature]:
    """Return the signature of each method of tensors, by its name."""
    of_torch = functions()
    names = [name for name, _ in _list_signatures(_OF_TORCH)] + ["swapaxes", "swapdims"]
    return {name: of_torch[getattr(torch, name)] for name in names if hasattr(torch.Tensor, name)}


def _list_signatures(text: str) -> list[tuple[str, str]]:
    return re.findall(r"(\w+)(\(.*?\))", text, re.DOTALL)


def _parse(function: Function, arguments: str) -> TorchSignature:
    (definition,) = ast.parse(f"def f{arguments}: ...").body
    given = definition.args  # type: ignore[attr-defined]  # a function definition
    names, named = ([each.arg for each in part] for part in (given.args, given.kwonlyargs))
    pairs = [*zip(reversed(names), reversed(given.defaults), strict=False)]
    pairs += zip(named, given.kw_defaults, strict=True)
    defaults = {name: ast.literal_eval(value) for name, value in pairs}
    rest = (given.vararg.arg,) if given.vararg is not None else ()
    return TorchSignature(function, (*names, *rest), tuple(named), defaults, bool(rest))
