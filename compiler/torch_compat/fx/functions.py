"""Torch's own functions and operators, and their names.

A function has a name only if every process finds it there: `torch.nn.functional.linear`, unless the
program has replaced it.
"""

# pyright: reportPrivateUsage=false, reportAttributeAccessIssue=false

import sys
from functools import cache
from types import BuiltinFunctionType, FunctionType, MethodDescriptorType
from typing import Any

import torch

from ctk.compiler.torch_compat.gpu.triton_kernels import WRAPPERS

_OWN_NAMESPACES = frozenset({
    "_c10d_functional", "_c10d_functional_autograd", "_dtensor", "_inductor_test", "_native",
    "_native_aot", "_quantized", "_test", "aten", "c10d", "c10d_functional", "coor",
    "debug_mode_ops", "debugprims", "export", "flex_gemm", "flex_lib", "fsdp", "higher_order",
    "inductor", "inductor_prims", "mempool", "mkl", "mkldnn", "mkldnn_prepacked", "onednn", "onnx",
    "onnx_symbolic", "prepacked", "prim", "prims", "profiler", "quantization", "quantized",
    "quantized_decomposed", "rngprims", "sparse", "static_runtime", "streams", "symm_mem",
})  # fmt: skip
"""Namespaces of the operators that torch 2.11 to 2.15 registers when it is imported.

Of other namespaces in `TORCH_NAMESPACES` (`triton`, `cuda`) a program may have operators too.
"""

_PLAIN_MODULES = ("_operator", "builtins", "math", "operator")


def is_torchs_operator(operator: Any) -> bool:
    """Return whether an operator comes with torch; all others come with the program."""
    name = getattr(operator, "_qualified_op_name", "") or str(operator.name())
    return name.partition("::")[0] in _OWN_NAMESPACES


def name_of(function: object) -> str | None:
    """Return the name of a function, class or higher-order operator; None if it is not torch's.

    Functions of Python's `operator`, `math` and `builtins` count as torch's.
    """
    if isinstance(function, torch._ops.HigherOrderOperator):
        is_own = type(function).__module__.partition(".")[0] == "torch"
        is_named = function._name not in WRAPPERS
        return f"higher_order.{function._name}" if is_own and is_named else None
    module = getattr(function, "__module__", None)
    if isinstance(function, MethodDescriptorType):
        module = function.__objclass__.__module__
    if not isinstance(module, str) or not _is_known(module):
        return None
    names = [getattr(function, "__qualname__", None), getattr(function, "__name__", None)]
    if isinstance(function, BuiltinFunctionType | MethodDescriptorType):
        return f"{module}.{names[0]}"  # made in C, so torch's own
    texts = (name for name in names if isinstance(name, str))  # `torch.ops` has any attribute
    return next((f"{module}.{name}" for name in texts if _look_up(module, name) is function), None)


def describe(function: object) -> str:
    """Return a function's module and name, for messages."""
    name = getattr(function, "__qualname__", None) or type(function).__qualname__
    return f"{getattr(function, '__module__', '?')}.{name}"


def _is_known(module: str) -> bool:
    return module.partition(".")[0] == "torch" or module in _PLAIN_MODULES


@cache
def is_torchs_method(name: str) -> bool:
    """Return whether a method of tensors is torch's, or tensors have none of this name."""
    method = getattr(torch.Tensor, name, None)
    if not isinstance(method, FunctionType):  # made in C, or not of a tensor
        return True
    return _is_known(method.__module__)


def _look_up(module: str, name: str | None) -> object:
    value: object = sys.modules.get(module)
    for part in (name or "<none>").split("."):
        value = getattr(value, part, None)
    return value
