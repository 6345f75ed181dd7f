"""Operators and functions: names, schemas, declarations; the dispatch keys of a tensor."""

# pyright: reportPrivateUsage=false, reportAttributeAccessIssue=false

import contextlib
import importlib
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch

from ctk.compiler.torch_compat.fx.operator_types import OpOverload, OpOverloadPacket
from ctk.compiler.torch_compat.gpu.triton_kernels import WRAPPER_MODULE, WRAPPERS


def native_function_names() -> tuple[str, ...]:
    """Return the names of the native functions bound on `torch` (`add`, `_foreach_add`)."""
    names = dir(_resolve("_C._VariableFunctions"))
    return tuple(name for name in names if not name.startswith("__"))


def python_code_of(operator: object) -> tuple[Callable[..., object], ...]:
    """Return the Python functions that a `torch.library.custom_op` runs; none for others."""
    if isinstance(operator, OpOverload):
        operator = operator.overloadpacket
    if not isinstance(operator, OpOverloadPacket):
        return ()
    made = torch._library.custom_ops.OPDEFS.get(operator._qualified_op_name)
    if made is None:
        return ()
    own = (made._init_fn, *made._backend_fns.values(), made._backward_fn, made._setup_context_fn)
    return tuple(function for function in own if function is not None)


def is_switch(target: object) -> bool:
    """Return whether a function only sets a mode or enters a region: it computes nothing."""
    return target in _switches()


@cache
def _switches() -> frozenset[object]:
    names = (name for name in _internal_names() if _SWITCH.search(name))
    return frozenset(_resolve(name) for name in names) - {None}


_SWITCH = re.compile(
    r"nesting$|_level$|_enabled?$|_disable$|_allowed$|_mode$|_autocast$|_algorithms$"
    r"|_decompositions$|_once$"
)

_INTERNAL_FUNCTIONS = {
    "masked._ops": """
        amax amin argmax argmin cumprod cumsum log_softmax logaddexp logsumexp mean median norm
        normalize prod softmax softmin std sum var
    """,
    "_C": """
        _enter_dual_level _exit_dual_level _is_fwd_grad_enabled _log_api_usage_once
        _set_deterministic_algorithms _set_fwd_grad_enabled _set_grad_enabled
        is_autocast_cache_enabled
    """,
    "_C._autograd": "_get_data_attr _saved_tensors_hooks_disable _saved_tensors_hooks_enable",
    "_C._functorch": """
        _grad_decrement_nesting _grad_increment_nesting _jvp_decrement_nesting
        _jvp_increment_nesting _unwrap_for_grad _wrap_for_grad _vmap_increment_nesting
        _vmap_decrement_nesting _add_batch_dim _remove_batch_dim get_inplace_requires_grad_allowed
        get_single_level_autograd_function_allowed set_inplace_requires_grad_allowed
        set_single_level_autograd_function_allowed
    """,
    "_functorch.eager_transforms": """
        _autograd_grad _set_tensor_requires_grad _assert_wrapped_functional
    """,
    "_functorch.predispatch": """
        lazy_load_decompositions _add_batch_dim _remove_batch_dim _vmap_increment_nesting
        _vmap_decrement_nesting _unwrap_for_grad _jvp_increment_nesting _jvp_decrement_nesting
        _make_dual _unpack_dual _enter_dual_level _exit_dual_level
    """,
    "_functorch.vmap": "lazy_load_decompositions",
    "_higher_order_ops._invoke_quant": "InvokeQuant",
    "amp.autocast_mode": "_enter_autocast _exit_autocast",
    "autograd.forward_ad": "_maybe_load_decompositions",
    "autograd.grad_mode": "_enter_inference_mode _exit_inference_mode",
    "cuda": "synchronize",
    "nested._internal.nested_tensor": """
        buffer_from_jagged jagged_from_list jagged_from_tensor_and_lengths
        nested_view_from_values_offsets nested_view_from_values_offsets_lengths
    """,
    "nn.attention": "_backend_from_string _sdpa_kernel",
    "sparse": "sum",
}

_NATIVE_MODULES = ("_C._nn", "_C._fft", "_C._linalg", "_C._nested", "_C._sparse", "_C._special")


def _internal_names() -> list[str]:
    tables = _INTERNAL_FUNCTIONS.items()
    return [f"{module}.{name}" for module, names in tables for name in names.split()]


def internal_functions() -> dict[str, Callable[..., Any]]:
    """Return torch's internal functions that Dynamo writes into graphs, by their dotted name.

    Cases: native bindings (`torch._C._nn.linear`); autocast, grad and inference regions;
    `torch.func.grad`, `vmap` and `jvp`, forward-mode differentiation; masked reductions; nested
    tensors. Functions that this torch lacks are left out.
    """
    names = [
        f"{module}.{name}"
        for module in _NATIVE_MODULES
        for name in dir(_resolve(module))
        if not name.startswith(("__", "_test"))
    ]
    found = {f"torch.{name}": _resolve(name) for name in [*names, *_internal_names()]}
    return {name: value for name, value in found.items() if callable(value)}


def _resolve(dotted: str) -> object | None:
    """Return `torch.<dotted>`, importing torch's own sub-modules on the way; None if absent."""
    found: object = torch
    path = "torch"
    for part in dotted.split("."):
        path = f"{path}.{part}"
        if not hasattr(found, part):
            with contextlib.suppress(ImportError):
                importlib.import_module(path)
        found = getattr(found, part, None)
    return found


def kind_of(target: object) -> str | None:
    """Return `overload`, `packet` or `higher_order` for an op of `torch.ops`, else None."""
    if isinstance(target, OpOverload):
        return "overload"
    if isinstance(target, OpOverloadPacket):
        return "packet"
    return "higher_order" if isinstance(target, torch._ops.HigherOrderOperator) else None


def qualified_name_of(target: Any) -> str:
    """Return `aten::add.Tensor` for an overload, `aten::add` for a packet."""
    if kind_of(target) == "packet":
        return str(target._qualified_op_name)
    # `OpOverload.name()` leaves out `.default`.
    return str(target._schema.name) + "." + str(target._overloadname)


def results_of(target: Any) -> tuple[str, ...]:
    """Return the type of each result of an overload, as the dispatcher has it."""
    return tuple(str(each.real_type) for each in target._schema.returns)


def overloads_of(packet: Any) -> tuple[Any, ...]:
    """Return the overloads of a packet that torch itself calls, without the `out` ones."""
    names = (name for name in packet.overloads() if "out" not in name)
    return tuple(getattr(packet, name) for name in names)


CORE_NAMESPACES = frozenset({"aten", "prim", "prims", "quantized_decomposed", "rngprims"})
"""Libraries of torch whose operators programs call."""

TORCH_NAMESPACES = frozenset({
    "_c10d_functional", "_c10d_functional_autograd", "_dtensor", "_inductor_debug",
    "_inductor_test", "_native", "_native_aot", "_quantized", "_test", "_torch_testing", "ao",
    "bucketing", "c10d", "c10d_functional", "coor", "cuda", "debug_mode_ops", "debugprims",
    "device_mesh", "dist_rpc", "export", "flex_gemm", "flex_lib", "fsdp", "inductor",
    "inductor_prims", "mempool", "metal_prepack", "mkl", "mkldnn", "mkldnn_prepacked", "onednn",
    "onnx", "onnx_symbolic", "prepacked", "profiler", "quantization", "quantized", "rpc",
    "semi_structured", "sparse", "static_runtime", "streams", "symm_mem", "torch_attn", "torch_nn",
    "triton", "vulkan_prepack", "xnnpack",
})  # fmt: skip
"""Libraries that torch registers besides those of `CORE_NAMESPACES`.

Those of torch 2.11 to 2.15: `torch._C._dispatch_get_all_op_names()`, and every
`torch.library.Library` in torch's own files.
"""


def declared_arguments(qualified: str) -> tuple[tuple[str, str], ...]:
    """Return (name, type) of each argument of all overloads of `aten::add`; none if unknown.

    Only looks: an unknown name registers, imports and calls nothing.
    """
    schemas = torch._C._jit_get_schemas_for_operator(qualified)
    found = (argument for schema in schemas for argument in schema.arguments)
    return tuple((str(argument.name), str(argument.type)) for argument in found)


def is_registered(qualified: str) -> bool:
    """Return whether an operator (`aten::add`) exists; only looks, as `declared_arguments`."""
    return bool(torch._C._jit_get_schemas_for_operator(qualified))


def is_dispatcher_op(target: Any) -> bool:
    """Return whether the dispatcher knows this op (for a packet: one of its overloads).

    `torch.ops` also reaches TorchScript's builtins (`aten::save` writes a pickle).
    """
    if kind_of(target) == "packet":
        return any(is_dispatcher_op(getattr(target, name)) for name in target.overloads())
    return bool(torch._C._dispatch_has_kernel(target.name()))


def higher_order_op(name: str) -> object | None:
    """Return `torch.ops.higher_order.<name>`, importing torch's own module that registers it.

    In torch: `torch._higher_order_ops` imports most of them; 2.13 imports
    `register_hook` when Dynamo first needs it, and both the launches of Triton kernels.
    """
    importlib.import_module("torch._higher_order_ops")
    if name in WRAPPERS:
        importlib.import_module(WRAPPER_MODULE)
    if name == "register_hook":
        with contextlib.suppress(ImportError):  # torch 2.11 has none
            importlib.import_module("torch._higher_order_ops.register_hook")
    return getattr(torch.ops.higher_order, name, None)


def custom_op_module(qualified: str) -> str | None:
    """Return the module that defined a `torch.library.custom_op`, if torch remembers it."""
    return getattr(_user_function(qualified), "__module__", None)


def _user_function(qualified: str) -> object:
    """Return the user's function of a `custom_op` or a `triton_op`; None for other operators.

    Torch wraps that of a `triton_op`, and registers it as the fake kernel too.
    """
    definition = torch._library.custom_ops.OPDEFS.get(qualified)
    own = getattr(definition, "_init_fn", None)
    is_wrapped = getattr(own, "__module__", None) == "torch._library.triton"
    return getattr(definition, "_abstract_fn", None) if is_wrapped else own


def registering_file(qualified: str) -> str | None:
    """Return the Python file that defined an operator (`mylib::f`), if torch remembers it.

    In torch: the function of a `torch.library.custom_op`; for a
    `torch.library.Library` the `registered at FILE.py:LINE` of `torch._C._dispatch_dump`; for an
    operator of C++ the file of its fake implementation, which usually loads the library.
    """
    function = _user_function(qualified)
    if function is not None:
        return getattr(getattr(function, "__code__", None), "co_filename", None)
    if not is_registered(qualified):
        return None
    said = re.search(
        r"^debug: registered at (.+\.py):\d+$", torch._C._dispatch_dump(qualified), re.MULTILINE
    )
    return said[1] if said else _file_of_fake(qualified)


def _file_of_fake(qualified: str) -> str | None:
    """Return the file of `torch.library.register_fake` for an operator."""
    fake = _fake_of(qualified)
    return fake.source.rpartition(":")[0] if fake is not None else None


def _fake_of(qualified: str) -> Any:
    """Return the fake implementation of an operator with its source; None if it has none."""
    return torch._library.simple_registry.singleton.find(qualified).fake_impl.kernel


def written_arguments_of(target: Any) -> tuple[tuple[int, str], ...]:
    """Return position and name of the arguments that an overload writes to."""
    arguments = enumerate(target._schema.arguments)
    written = ((at, arg) for at, arg in arguments if arg.alias_info and arg.alias_info.is_write)
    return tuple((at, str(arg.name)) for at, arg in written)


@dataclass(frozen=True, slots=True)
class Declared:
    """The declarations of an operator overload in its schema and tags.

    Attributes:
        writes: Whether it writes to an argument.
        returns_written: Whether a result is an argument to which it writes.
        views: Whether a result is a view of an argument.
        returns: The number of its results.
    """

    writes: bool
    returns_written: bool
    random: bool
    views: bool
    returns: int
    pointwise: bool


def declared_by(target: object) -> Declared | None:
    """Return the declarations of an operator overload, or None for any other target."""
    return _declarations(target) if isinstance(target, OpOverload) else None


@cache
def _declarations(target: Any) -> Declared:
    schema = target._schema
    views = any(r.alias_info is not None and not r.alias_info.is_write for r in schema.returns)
    written = any(r.alias_info is not None and r.alias_info.is_write for r in schema.returns)
    random = torch.Tag.nondeterministic_seeded in target.tags
    pointwise = torch.Tag.pointwise in target.tags
    return Declared(schema.is_mutable, written, random, views, len(schema.returns), pointwise)


def argument_names(ns: str, operator: str) -> list[str]:
    """Return the arguments of `add.Tensor` or `abs`; none if no such operator is registered."""
    name, _, overload = operator.partition(".")
    for schema in torch._C._jit_get_schemas_for_operator(f"{ns}::{name}"):
        if schema.overload_name == overload.removeprefix("default"):
            return [argument.name for argument in schema.arguments]
    return []


def dispatch_key_set(tensor: torch.Tensor) -> int:
    """Return the dispatch keys of a tensor as torch's own files hold them."""
    keys: Any = torch._C._dispatch_keys(tensor)
    return int(keys.raw_repr())


_TRACED = (
    "_abstract_fn", "_setup_context_fn", "_backward_fn", "_vmap_fn", "_torch_dispatch_fns",
    "_autocast_cuda_dtype", "_autocast_cpu_dtype", "_autocast_dtype",
)  # fmt: skip
"""Attributes of a `CustomOpDef` besides its kernels; from torch 2.13 on `_autocast_dtype` alone."""

_DEVICES = ("CPU", "CUDA", "MPS", "XPU", "HPU", "MTIA")


@dataclass(frozen=True, slots=True)
class TracedCode:
    """The schemas of an operator, one per overload, and the code that a trace depends on."""

    schema: str
    code: tuple[object, ...]


def code_of_trace(operator: Any) -> TracedCode | str:
    """Return the code of a program's operator that a trace runs, or why it is unknown.

    A trace runs the operator's fake kernel, which gives the shapes of its results, and its
    gradient; a kernel for a device only runs in the compiled program, found by its name.
    `torch.library.custom_op` keeps all of them as Python functions. Registrations of
    `torch.library.Library` are hidden in the dispatcher: only their keys and a fake kernel are
    known.
    """
    packet = operator if hasattr(operator, "overloads") else operator.overloadpacket
    name = packet._qualified_op_name
    schemas = [str(getattr(packet, overload)._schema) for overload in packet.overloads()]
    tags = [sorted(map(str, getattr(packet, overload).tags)) for overload in packet.overloads()]
    made = torch._library.custom_ops.OPDEFS.get(name)
    if made is not None:
        code = tuple(getattr(made, each, None) for each in _TRACED)
        return TracedCode(f"{schemas}{tags}", (*code, made._init_fn))
    if not any(each.partition(".")[0] == name for each in torch.library._defs):
        return "not registered from Python (torch.library)"
    keys = _keys_of(name)
    hidden = [key for key in keys if key not in _DEVICES]
    if hidden:
        return (
            f"its kernel for {hidden[0]} is hidden in the dispatcher; use torch.library.custom_op"
        )
    fake = _fake_of(name)
    function = getattr(fake, "func", fake)
    return TracedCode(f"{schemas}{tags}{keys}", (function,))


def _keys_of(name: str) -> list[str]:
    """Return for which dispatch keys Python has registered a kernel of an operator."""
    start = name.replace("::", "/")
    found = (each.rpartition("/") for each in torch.library._impls)
    return sorted({key for head, _, key in found if head.partition(".")[0] == start})
