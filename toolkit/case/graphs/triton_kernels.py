"""Calls of the program's own Triton kernels in a graph: the kernel by name, its constants by value.

In a graph, two arguments of such a call are numbers of this process. A case holds the kernel as a
function of the user (`module:function`, which needs trust) in their place:

    "kernel_idx": {"target": "kernels:add"}, "constant_args_idx": {"dict": [["BLOCK", 16]]}

A kernel reads and writes memory without checks, so a smaller tensor, or a larger index in one, can
break the process. `check_launch` refuses both: it remembers the extents of the tensors of the first
launch, and a case holds them as `"operands"`.

A kernel that Dynamo made of another one, because a call sets `num_warps` or because heuristics
chose its settings, is held as that kernel with the settings. Kernels of a local scope have no name.
"""

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch.fx import Node

from ctk.compiler.errors import CaseError, NotHeld
from ctk.compiler.fx.types import value_of
from ctk.compiler.fx.walk import flat
from ctk.compiler.torch_compat.fake.fake_tensors import is_fake
from ctk.compiler.torch_compat.fx import operators
from ctk.compiler.torch_compat.gpu import triton_kernels as kernels
from ctk.compiler.usercode.python_files import module_name, plain_name
from ctk.toolkit.case.formats.strict_json import Json, expect, items
from ctk.toolkit.case.usercode.references import modules_of_user, script_file

OPERANDS = "operands"
"""The key of the remembered tensors among the arguments of a launch in JSON."""


@dataclass(frozen=True, slots=True)
class Operand:
    """A tensor that a kernel got: its elements from the first to the last, its least and largest.

    Only integers have a least and a largest value: they may be indices.
    """

    span: int
    least: int | None = None
    largest: int | None = None

    def holds(self, other: "Operand") -> bool:
        """Return whether a kernel that got this tensor may get the other one."""
        if other.span < self.span:
            return False
        if None in (self.least, self.largest, other.least, other.largest):
            return True
        low, high = cast("int", self.least), cast("int", self.largest)
        return low <= cast("int", other.least) and cast("int", other.largest) <= high


_LAUNCHES: dict[int, dict[str, Operand]] = {}
"""The tensors of the first launch, beside torch's table: by the number of its constants."""


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


def portable_arguments(node: Node) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return the arguments of a node without numbers that only this process knows."""
    numbers = (kernels.KERNEL, kernels.CONSTANTS) if is_kernel_call(node.target) else ()
    return node.args, {key: value for key, value in node.kwargs.items() if key not in numbers}


def remembered_operands(node: Node) -> dict[str, list[int | None]] | None:
    """Return the tensors of the first launch of a node, for `loaded_arguments`; None if unknown."""
    if not is_kernel_call(node.target):
        return None
    known = _LAUNCHES.get(cast("int", node.kwargs[kernels.CONSTANTS]))
    pairs = known.items() if known is not None else ()
    return {name: [each.span, each.least, each.largest] for name, each in pairs} or None


def check_launch(node: Node, given: Mapping[str, Any]) -> None:
    """Refuse tensors for a kernel outside of which it could read or write.

    A launch with symbolic sizes is not checked: they follow its tensors.

    Raises:
        CaseError: A tensor is smaller than in the first launch, or has other indices.
    """
    if not is_kernel_call(node.target) or _has_symbolic_sizes(node):
        return
    kernels.keep_numbers()
    tensors = {n: t for n, t in given["kwargs"].items() if isinstance(t, torch.Tensor)}
    found = {name: _operand(tensor) for name, tensor in tensors.items()}
    known = _LAUNCHES.get(given[kernels.CONSTANTS])
    if known is None and not any(map(is_fake, tensors.values())):
        known = _LAUNCHES[given[kernels.CONSTANTS]] = found
    for name, operand in (known or {}).items():
        if name not in found or not operand.holds(found[name]):
            raise CaseError(
                f"node {node.name}: the Triton kernel could leave the memory of {name}: it got "
                f"{operand} in the program, and {found.get(name)} here"
            )


def _has_symbolic_sizes(node: Node) -> bool:
    leaves = flat((node.kwargs["grid"], node.kwargs["kwargs"]))
    values = [value_of(leaf) for leaf in leaves if isinstance(leaf, Node)]
    return any(isinstance(value, int | torch.SymInt) for value in values)


def _operand(tensor: torch.Tensor) -> Operand:
    if 0 in tensor.shape:
        return Operand(0)
    pairs = zip(tensor.shape, tensor.stride(), strict=True)
    span = 1 + sum((int(size) - 1) * int(step) for size, step in pairs)
    is_index = not (tensor.is_floating_point() or tensor.is_complex() or is_fake(tensor))
    if not is_index or tensor.dtype is torch.bool:
        return Operand(span)
    return Operand(span, int(tensor.min()), int(tensor.max()))


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


def remember(given: Mapping[str, Any], known: Json, where: str) -> None:
    """Remember the tensors of a launch that a case holds: the result of `remembered_operands`."""
    found: dict[str, Operand] = {}
    for name in known:
        numbers = items(known, name, object, where)
        if len(numbers) != 3 or not all(each is None or type(each) is int for each in numbers):
            raise CaseError(f"{where}: {OPERANDS} of {name!r} are not three integers")
        span, least, largest = cast("list[Any]", numbers)
        found[name] = Operand(span or 0, least, largest)
    _LAUNCHES[given[kernels.CONSTANTS]] = found


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
    raise NotHeld(
        f"Triton kernel {function.__qualname__} cannot be kept in a case: it is not at the top "
        "level of a file; move it there, out of functions and interactive sessions"
    )


def _places(kernel: object) -> list[tuple[str, str, object]]:
    """Return module, name and kernel wherever a kernel wraps the same Python function."""
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
