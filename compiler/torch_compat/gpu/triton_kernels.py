"""The program's own Triton kernels in graphs: numbers in a table of the process.

Dynamo and `torch.library.wrap_triton` write

    triton_kernel_wrapper_mutation(kernel_idx=0, constant_args_idx=3, grid=..., kwargs=...)

where 0 is the place of the kernel in torch's table, and 3 that of its constant arguments. A call
with the kernel and the constants themselves means the same in every process:

    kernel_idx=add_kernel, constant_args_idx={"BLOCK": 16}
    kernel_idx=(add_kernel, [{"kwargs": {}, "num_warps": 8}])   tuned by these settings

Emitted repros carry `with_numbers`. triton is imported on demand.
"""

import inspect
import sys
from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import Any

MUTATING_WRAPPER = "triton_kernel_wrapper_mutation"
WRAPPERS = ("triton_kernel_wrapper_functional", MUTATING_WRAPPER)
"""The higher-order operators that launch a kernel; the first returns copies of written tensors."""

WRAPPER_MODULE = "torch._higher_order_ops.triton_kernel_wrap"
"""The module of torch that registers them."""

KERNEL = "kernel_idx"
CONSTANTS = "constant_args_idx"
"""The arguments of a wrapper that are numbers."""


def _table() -> Any:
    table = import_module(WRAPPER_MODULE).kernel_side_table
    table.reset_table = _keep_table
    return table


def _keep_table() -> None:
    """Keep the table in `torch.compiler.reset()`: graphs outlive it, and hold its numbers."""


def keep_numbers() -> None:
    """Keep the numbers of the graphs that this process has captured valid."""
    if WRAPPER_MODULE in sys.modules:
        _table()


def with_numbers(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Enter a kernel and its constants in torch's table; return a wrapper's arguments with them."""
    kernel = arguments[KERNEL]
    kernel = tuned_kernel(*kernel) if isinstance(kernel, tuple) else kernel
    numbers = {
        KERNEL: _table().add_kernel(kernel),
        CONSTANTS: _table().add_constant_args(dict(arguments[CONSTANTS])),
    }
    return {**arguments, **numbers}


def without_numbers(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments of a wrapper with its kernel and constants in place of the numbers."""
    values = {
        KERNEL: _table().get_kernel(arguments[KERNEL]),
        CONSTANTS: _table().get_constant_args(arguments[CONSTANTS]),
    }
    return {**arguments, **values}


def tuned_kernel(kernel: Any, settings: Sequence[Mapping[str, Any]]) -> Any:
    """Return the function below a kernel, tuned by other settings, as Dynamo makes one."""
    triton = import_module("triton")
    while not inspect.isfunction(kernel.fn):
        kernel = kernel.fn
    configs = [triton.Config(**each) for each in settings]
    return triton.autotune(configs=configs, key=[])(kernel)


def settings_of(kernel: Any) -> list[dict[str, Any]] | None:
    """Return the settings among which a kernel is tuned; None if it is not tuned."""
    configs = getattr(kernel, "configs", None)
    given = (vars(each).items() for each in configs or ())
    settings = [{k: value for k, value in sorted(pairs) if value is not None} for pairs in given]
    return None if configs is None else settings


def is_kernel(value: object) -> bool:
    """Return whether a value is a kernel: a function under `@triton.jit`, tuned or not."""
    module = type(value).__module__
    return module.startswith("triton.runtime.") and function_of(value) is not None


def function_of(kernel: Any) -> Any:
    """Return the Python function of a kernel, or None."""
    while kernel is not None and not inspect.isfunction(kernel):
        kernel = getattr(kernel, "fn", None)
    return kernel


def types_by_name() -> dict[str, Any]:
    """Return the types of Triton's language by name; none before Triton is imported."""
    if "triton.language" not in sys.modules:
        return {}
    language: Any = import_module("triton.language")
    return {n: value for n, value in vars(language).items() if isinstance(value, language.dtype)}
