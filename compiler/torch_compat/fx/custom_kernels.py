"""Replace the kernels of custom operators for a while: operators of no namespace of torch.

Every call reaches the replacement: from eager, from compiled code, inside control flow and in a
backward pass. An operator without a kernel of its own (`CompositeImplicitAutograd`) is left alone,
because a compiler never sees it.

In torch: `torch.library.get_kernel`, `Library.impl(with_keyset=True)`.
"""

# pyright: reportPrivateUsage=false, reportAttributeAccessIssue=false

import warnings
from collections.abc import Callable, Generator, Iterable, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch

from ctk.compiler.torch_compat.fx.operator_types import OpOverload
from ctk.compiler.torch_compat.fx.operators import CORE_NAMESPACES, TORCH_NAMESPACES

Call = Callable[[Callable[..., Any], tuple[Any, ...], Mapping[str, Any]], Any]
"""Gets the kernel of an operator, and the arguments of a call; returns its result."""

WHOLE_NAMESPACE = "ctk_whole"
"""The namespace of the operators that stand for custom operators (whole_operators.py)."""

_NOT_CUSTOM = CORE_NAMESPACES | TORCH_NAMESPACES | {WHOLE_NAMESPACE}
_DEVICES = ("CPU", "CUDA", "XPU")
_COMPOSITE = "CompositeImplicitAutograd"


@dataclass(frozen=True, slots=True)
class Argument:
    """An argument of an operator, as its schema declares it.

    Attributes:
        is_written: Whether the operator may write into it.
        is_viewed: Whether a result may share its memory.
    """

    name: str
    is_written: bool
    is_viewed: bool


def is_custom(operator: object) -> bool:
    """Return whether something is an operator that torch does not define itself."""
    return isinstance(operator, OpOverload) and operator.namespace not in _NOT_CUSTOM


def operator_name(operator: Any) -> str:
    """Return the name as users write it: `mylib::scale`, and `mylib::scale.out` of an overload."""
    return str(operator.name())


def custom_operators() -> tuple[OpOverload, ...]:
    """Return the custom operators of this process that have a kernel of their own."""
    names = (str(name) for name in torch._C._dispatch_get_all_op_names())
    own = (name for name in names if name.partition("::")[0] not in _NOT_CUSTOM)
    found = (_find_operator(name) for name in own if _has_own_kernel(name))
    return tuple(operator for operator in found if operator is not None)


def arguments_of(
    operator: OpOverload, args: Iterable[Any], kwargs: Mapping[str, Any]
) -> list[tuple[Argument, Any]]:
    """Return the arguments of a call with their declarations; defaults are left out."""
    declared = [_argument_of(each) for each in operator._schema.arguments]
    named = {argument.name: argument for argument in declared}
    given = list(zip(declared, args, strict=False))
    return given + [(named[name], value) for name, value in kwargs.items()]


def is_seeded(operator: OpOverload) -> bool:
    """Return whether an operator declares that it draws random numbers."""
    return torch.Tag.nondeterministic_seeded in operator.tags


@contextmanager
def kernels_replaced(replacements: Mapping[OpOverload, Call]) -> Generator[None]:
    """Replace the kernels of operators until the region ends."""
    libraries: list[torch.library.Library] = []
    try:
        for operator, call in replacements.items():
            library = torch.library.Library(operator.namespace, "IMPL")
            libraries.append(library)
            for device in _DEVICES:
                if _has_kernel(operator.name(), device):
                    _replace(library, operator, device, call)
        yield
    finally:
        for library in reversed(libraries):
            library._destroy()


def _replace(library: torch.library.Library, operator: OpOverload, device: str, call: Call) -> None:
    kernel = torch.library.get_kernel(operator, device)

    def run(keys: Any, *args: Any, **kwargs: Any) -> Any:
        return call(partial(kernel.call_boxed, keys), args, kwargs)

    with warnings.catch_warnings():  # that a kernel is replaced
        warnings.simplefilter("ignore")
        library.impl(operator.name(), run, device, with_keyset=True, allow_override=True)


def _has_own_kernel(name: str) -> bool:
    return any(_has_kernel(name, device) for device in _DEVICES)


def _has_kernel(name: str, device: str) -> bool:
    has = torch._C._dispatch_has_kernel_for_dispatch_key
    computed = torch._C._dispatch_has_computed_kernel_for_dispatch_key
    return computed(name, device) and not has(name, _COMPOSITE)


def _find_operator(name: str) -> OpOverload | None:
    """Return the operator of a name; None if a library has a kernel for it, but declares none.

    torchao implements its CUDA operators where the library that declares them is absent.
    """
    namespace, _, rest = name.partition("::")
    packet, _, overload = rest.partition(".")
    operators = getattr(getattr(torch.ops, namespace), packet, None)
    return getattr(operators, overload or "default", None)


def _argument_of(declared: Any) -> Argument:
    alias = declared.alias_info
    return Argument(declared.name, alias is not None and alias.is_write, alias is not None)
