"""Calls of the program's own Triton kernels in a graph: the kernel by name, its constants by value.

In a graph, two arguments of such a call are numbers of this process. A case holds the kernel as a
function of the user (`module:function`, which needs trust) in their place:

    "kernel_idx": {"target": "kernels:add"}, "constant_args_idx": {"dict": [["BLOCK", 16]]}

A kernel that Dynamo made of another one, because a call sets `num_warps` or because heuristics
chose its settings, is held as that kernel with the settings. Kernels of a local scope have no name.
"""

import sys
from collections.abc import Mapping
from typing import Any

from torch.fx import Node

from ctk.compiler.errors import CaseError
from ctk.compiler.torch_compat.fx import operators
from ctk.compiler.torch_compat.gpu import triton_kernels as kernels
from ctk.compiler.usercode.python_files import module_name, plain_name
from ctk.toolkit.case.formats.strict_json import expect
from ctk.toolkit.case.usercode.references import modules_of_user, script_file


def is_kernel_call(target: object) -> bool:
    """Return whether the target of a node launches a kernel of the program."""
    return operators.kind_of(target) == "higher_order" and str(target) in kernels.WRAPPERS


def kept_arguments(node: Node) -> dict[str, Any]:
    """Return the keyword arguments of a node, a kernel and its constants in place of numbers.

    Raises:
        CaseError: The kernel has no name.
    """
    given = dict(node.kwargs)
    if not is_kernel_call(node.target):
        return given
    found = kernels.without_numbers(given)
    return {**found, kernels.KERNEL: _named(found[kernels.KERNEL])}


def loaded_arguments(target: object, given: Mapping[str, Any], where: str) -> dict[str, Any]:
    """Return the keyword arguments of a node of a loaded graph: the inverse of `kept_arguments`.

    Raises:
        CaseError: They do not name a kernel: a number would be one of this process.
    """
    if not is_kernel_call(target):
        return dict(given)
    kernel = given.get(kernels.KERNEL)
    found = kernel[0] if isinstance(kernel, tuple) and len(kernel) == 2 else kernel
    if not kernels.is_kernel(found):
        raise CaseError(f"{where}: {target} launches a Triton kernel, and its graph names none")
    expect(given.get(kernels.CONSTANTS), dict, where)
    return kernels.with_numbers(given)


def kernel_of(node: Node) -> object | None:
    """Return the kernel that a node launches, as a module has it; None for other nodes."""
    if not is_kernel_call(node.target):
        return None
    named = kept_arguments(node)[kernels.KERNEL]
    return named[0] if isinstance(named, tuple) else named


def kernel_place(kernel: object) -> tuple[str, str] | None:
    """Return the plain name of the module that has a kernel, and its name there."""
    found = next((place for place in _places(kernel) if place[2] is kernel), None)
    return found[:2] if found else None


def _named(kernel: object) -> object:
    """Return a kernel that a module has, or the one below it with the settings of this one."""
    places = _places(kernel)
    if any(each is kernel for *_, each in places):
        return kernel
    if places:
        return places[0][2], kernels.settings_of(kernel) or []
    function = kernels.function_of(kernel)
    raise CaseError(
        f"Triton kernel {function.__qualname__} cannot be kept in a case: it is not at the top "
        "level of a file; move it there, out of functions and interactive sessions"
    )


def _places(kernel: object) -> list[tuple[str, str, object]]:
    """Return module, name and kernel of those that wrap the same Python function."""
    function = kernels.function_of(kernel)
    own = sys.modules.get(function.__module__)
    modules = [*([own] if own is not None else []), *modules_of_user()]
    return [
        (named, name, each)
        for module in modules
        if (named := _plain_name(module.__name__)) is not None
        for name, each in list(vars(module).items())
        if kernels.is_kernel(each) and kernels.function_of(each) is function
    ]


def _plain_name(module: str) -> str | None:
    """Return the name of a module for a case; of the running script, that of its file."""
    if module != "__main__":
        return plain_name(module)
    script = script_file()
    return None if script is None else module_name(script)
