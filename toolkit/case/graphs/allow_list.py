"""The allow-list: functions, methods and attributes that a graph of a case may use."""

import builtins
import functools
import math
import operator
from collections.abc import Callable, Iterable
from types import ModuleType
from typing import Any

import torch

from ctk.compiler.errors import CaseError, nearest
from ctk.compiler.torch_compat.fx import operators
from ctk.toolkit.case.formats.plain_text import quote_value, words

Function = Callable[..., Any]


ATTRIBUTES = frozenset(
    words("""
    H T data device dtype grad imag is_cpu is_cuda is_leaf is_meta is_mps is_nested
    is_quantized is_sparse is_sparse_csr is_xpu itemsize layout mH mT names nbytes ndim real
    requires_grad shape start step stop
    """)
)
"""Attributes that `getattr` may read in a graph: of tensors, sizes and slices."""

_TORCH_PYTHON = words("""
    _assert _check _check_index _check_is_size _check_not_implemented _check_tensor_all
    _check_tensor_all_with _check_type _check_value _check_with _sym_acos _sym_asin _sym_atan
    _sym_cos _sym_cosh _sym_log2 _sym_sin _sym_sinh _sym_sqrt _sym_tan _sym_tanh
    are_deterministic_algorithms_enabled broadcast_shapes get_default_dtype is_autocast_enabled
    is_floating_point is_grad_enabled is_inference_mode_enabled is_tensor set_grad_enabled
    sym_float sym_fresh_size sym_int sym_ite sym_max sym_min sym_not sym_sqrt sym_sum
""")

_REFUSED = frozenset(
    words("""
    _from_blob from_file from_numpy frombuffer apply_ map_ map2_ as_subclass module_load
    numpy register_hook register_post_accumulate_grad_hook const_data_ptr data_ptr is_shared
    record_stream share_memory_ storage storage_type untyped_storage
    handle_torch_function boolean_dispatch __array__ __array_wrap__ __deepcopy__ __dlpack__
    __dlpack_device__ __format__ __reduce_ex__ __repr__ __setstate__
    """)
)
"""Overridable or native, but they open files, call back, unpickle, or reach raw memory."""

_METHODS_BESIDES = words("""
    new_empty new_empty_strided new_full new_ones new_tensor new_zeros set_ stride unflatten
    to_padded_tensor to_sparse_bsc to_sparse_bsr to_sparse_coo to_sparse_csc to_sparse_csr
""")
"""Methods of Tensor that `torch.overrides` does not list as overridable."""

_EXPLODING = frozenset(("comb", "factorial", "perm"))
"""Functions of `math` with results of unbounded size; Dynamo computes them itself."""

_OPERATORS = words("""
    abs add and_ concat contains countOf eq floordiv ge getitem gt iadd iand iconcat ifloordiv
    ilshift imatmul imod imul index indexOf inv invert ior ipow irshift is_ is_not isub itruediv
    ixor le lshift lt matmul mod mul ne neg not_ or_ pos pow rshift setitem sub truediv truth
    xor
""")
"""`operator` without `call`, `attrgetter`, `itemgetter`, `methodcaller`: they reach any method."""

BUILTINS = words("""
    abs all any bool complex divmod float getattr int len list max min pow range round slice sum
    tuple
""")


@functools.cache
def functions_by_name() -> dict[str, Function]:
    """Return cases 3 to 5: every function that a graph may call, by its qualified name."""
    found: dict[str, Function] = {}
    for module, names in _module_names():
        for name in names:
            value = getattr(module, name, None)
            if callable(value) and name not in _REFUSED:
                found[f"{module.__name__}.{name}"] = value
    own = {f"torch.Tensor.{name}": getattr(torch.Tensor, name, None) for name in methods()}
    own = {name: value for name, value in own.items() if callable(value)}
    return found | operators.internal_functions() | own


def _module_names() -> Iterable[tuple[ModuleType, Iterable[str]]]:
    yield (
        torch,
        dict.fromkeys([*operators.native_function_names(), *_overridable(torch), *_TORCH_PYTHON]),
    )
    functional = torch.nn.functional
    yield functional, [*_overridable(functional), *_own_functions(functional)]
    for module in (torch.linalg, torch.fft, torch.special, torch.functional):
        yield module, _overridable(module)
    yield operator, _OPERATORS
    yield math, [name for name in dir(math) if name not in _EXPLODING and name[0] != "_"]
    yield builtins, BUILTINS
    yield torch.random, ("get_rng_state", "initial_seed", "manual_seed", "seed", "set_rng_state")


def _overridable(owner: object) -> list[str]:
    """Names of a module's or class's functions that `torch.overrides` lists, in order."""
    listed = _overridable_functions()
    values = ((name, getattr(owner, name, None)) for name in dir(owner))
    return [name for name, value in values if _is_function(value) and value in listed]


@functools.cache
def _overridable_functions() -> frozenset[object]:
    groups = torch.overrides.get_overridable_functions().values()
    return frozenset(function for group in groups for function in group if _is_function(function))


def _is_function(value: object) -> bool:
    return (
        callable(value)
        and not isinstance(value, type)
        and getattr(value, "__hash__", None) is not None
    )


def _own_functions(module: ModuleType) -> list[str]:
    """Public functions of `torch.nn.functional` that are not overridable (`relu_`, `hardswish`)."""
    own_functions = (
        (name, getattr(module, name))
        for name in dir(module)
        if not name.startswith(("_", "has_torch"))
    )
    inside = (module.__name__, "torch._C._nn", "torch")
    return [
        name
        for name, value in own_functions
        if _is_function(value) and getattr(value, "__module__", None) in inside
    ]


@functools.cache
def _names_by_function() -> dict[int, str]:
    """The first (most public) name of each function, by identity."""
    names: dict[int, str] = {}
    for name, value in functions_by_name().items():
        names.setdefault(id(value), name)
    return names


def function_name(function: object) -> str | None:
    """Return the most public name of a function of cases 3 to 5 of `callables`, or None."""
    return _names_by_function().get(id(function))


@functools.cache
def methods() -> frozenset[str]:
    """Return the names of Tensor methods that a graph may call."""
    return frozenset({*_overridable(torch.Tensor), *_METHODS_BESIDES} - _REFUSED)


def check_method(name: str) -> str:
    """Return the name of a Tensor method; raise `CaseError` unless a graph may call it."""
    if name in methods():
        return name
    raise CaseError(
        f"method {quote_value(name)} is not allowed in a graph{nearest(name, methods())}"
    )


def check_attribute(name: object) -> None:
    """Raise `CaseError` unless a graph may read this second argument of `getattr`."""
    if not (isinstance(name, str) and name in ATTRIBUTES):
        hint = nearest(name, ATTRIBUTES) if isinstance(name, str) else ""
        raise CaseError(f"getattr of {quote_value(name)} is not allowed in a graph{hint}")
