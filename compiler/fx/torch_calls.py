"""Calls of torch as programs write them, in one form: the function, and its arguments by name.

`x.permute(0, 2, 1)`, `x.permute((0, 2, 1))` and `torch.permute(dims=(0, 2, 1), input=x)` are all
`TorchCall(torch.permute, {"input": x, "dims": (0, 2, 1)})`, and `x @ y` is a call of
`torch.matmul`. A call in place, of operands other than plain tensors, with `out=`, or of a function
outside `torch_signatures`, has no such form.

    call = call_of(node)
    if call is not None and call.function is torch.permute:
        source, dims = call.arguments["input"], call.arguments["dims"]
"""

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch.fx import Node
from torch.fx.node import Argument

from ctk.compiler.fx.effects import is_calm, mutated_arguments
from ctk.compiler.fx.torch_signatures import ALIASES, Function, TorchSignature, functions, methods
from ctk.compiler.fx.types import number_type, tensor_of, value_of
from ctk.compiler.torch_compat.fake import fake_tensors as fake
from ctk.compiler.torch_compat.fx.arguments import parameters_of
from ctk.compiler.torch_compat.fx.operator_types import OpOverload

_COMMUTATIVE = (torch.add, torch.mul)
_OF_EACH = ("out", "requires_grad")
"""Arguments that schemas do not declare."""


@dataclass(frozen=True, slots=True)
class TorchCall:
    """A call in canonical form, with the defaults of omitted arguments."""

    function: Function
    arguments: Mapping[str, Argument]

    def node(self, name: str) -> Node | None:
        """Return an argument if it is a node."""
        value = self.arguments.get(name)
        return value if isinstance(value, Node) else None


def function_of(node: Node) -> Function | None:
    """Return the function of a node's signature, without a check of the arguments."""
    signature = _signature_of(node.target)
    return signature.function if signature is not None else None


def call_of(node: object) -> TorchCall | None:
    """Return the canonical form of a node's call; None if it has none."""
    return read_call(node.target, node.args, node.kwargs) if isinstance(node, Node) else None


def read_call(
    target: object, args: tuple[Argument, ...], kwargs: Mapping[str, Argument]
) -> TorchCall | None:
    """Return the canonical form of a call; the target of a method is its name."""
    signature = _signature_of(target)
    given = _bind(signature, target, args, kwargs) if signature is not None else None
    if signature is None or given is None or not _takes_tensors(signature, given):
        return None
    meant = functions()[signature.function]
    known = (*meant.names, *meant.named)
    only_here = [name for name in given if name not in known or name == "inplace"]
    if any(not _is_default(signature, name, given[name]) for name in only_here):
        return None
    return TorchCall(meant.function, _fill(meant, {n: given[n] for n in known if n in given}))


def fill_arguments(
    target: object, args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> tuple[Any, ...] | None:
    """Return all arguments of a function or method in its order, with defaults; None if unknown.

    A number for a number on the left stays there, unlike in `TorchCall`, and each spelling of a
    function has an order of its own.
    """
    signature = _signature_of(target)
    given = _bind(signature, target, args, kwargs) if signature is not None else None
    if signature is None or given is None:
        return None
    whole = {**signature.defaults, **given}
    return tuple(whole.get(name) for name in (*signature.names, *signature.named))


def misfit_of(target: object, args: tuple[object, ...], kwargs: Mapping[str, object]) -> str | None:
    """Return why no overload of a function or method takes these arguments: a predicate.

    None if one may, or if its parameters are unknown; an overload fills in its own.
    """
    if isinstance(target, OpOverload):
        return None
    if inspect.isfunction(target):
        try:
            inspect.signature(target).bind(*args, **kwargs)
        except TypeError as error:
            return f"takes other arguments, {error}"
        return None
    op = "call_method" if isinstance(target, str) else "call_function"
    overloads = parameters_of(op, target)
    parameters = [each for overload in overloads for each in overload]
    unknown = sorted(kwargs.keys() - {*ALIASES, *_OF_EACH, *(each.name for each in parameters)})
    if overloads and unknown:
        return f"has no argument {unknown[0]!r}"
    is_variadic = any(each.type == "List[int]" for each in parameters)
    counts = (sum(each.is_positional for each in overload) for overload in overloads)
    most = max(counts, default=len(args))
    if is_variadic or len(args) <= most:
        return None
    return f"takes at most {most} by place, not {len(args)}"


def write_arguments(call: TorchCall) -> tuple[tuple[Argument, ...], dict[str, Argument]]:
    """Return a call's arguments in the schema's order, without trailing defaults."""
    signature, given = functions()[call.function], call.arguments
    places = [name for name in signature.names if name in given]
    while places and _is_default(signature, places[-1], given[places[-1]]):
        places.pop()
    named = [n for n in signature.named if not _is_default(signature, n, given[n])]
    return tuple(given[name] for name in places), {name: given[name] for name in named}


def _signature_of(target: object) -> TorchSignature | None:
    return methods().get(target) if isinstance(target, str) else functions().get(target)


def _bind(
    signature: TorchSignature,
    target: object,
    args: tuple[Argument, ...],
    kwargs: Mapping[str, Argument],
) -> dict[str, Argument] | None:
    """Return the given arguments by name; None if one is unknown or given twice."""
    if signature.is_variadic and isinstance(target, str) and _is_number(args[1:2]):
        args = (args[0], args[1:])
    if len(args) > len(signature.names):
        return None
    given: dict[str, Argument] = dict(zip(signature.names, args, strict=False))
    for name, value in kwargs.items():
        known = (*signature.names, *signature.named)
        meant = name if name in known else ALIASES.get(name)
        if meant not in known or meant in given:
            return None
        given[meant] = value
    missing = [n for n in signature.names if n not in given and n not in signature.defaults]
    last = signature.names[-len(missing) :] if missing else ()
    return given if tuple(missing) == last or not missing else None


def _fill(signature: TorchSignature, given: dict[str, Argument]) -> dict[str, Argument]:
    if signature.function in _COMMUTATIVE and _is_number((given["input"],)):
        given = {**given, "input": given["other"], "other": given["input"]}
    known = (*signature.names, *signature.named)
    whole = {**signature.defaults, **given}
    return {name: cast("Argument", whole[name]) for name in known if name in whole}


def _takes_tensors(signature: TorchSignature, given: Mapping[str, Argument]) -> bool:
    """Return whether the operands are plain tensors, of which one may be a number.

    A number on the left has the meaning of the function only for `_COMMUTATIVE`.
    """
    first, other = given.get(signature.names[0]), given.get("other", given.get("exponent"))
    if signature.names[0] == "tensors":
        return isinstance(first, (tuple, list)) and all(map(_is_tensor, first))
    if _is_tensor(first):
        return other is None or _is_tensor(other) or _is_number((other,))
    return signature.function in _COMMUTATIVE and _is_number((first,)) and _is_tensor(other)


def plain_tensor_of(argument: object) -> torch.Tensor | None:
    """Return the recorded tensor of a node, unless its class overrides calls."""
    value = tensor_of(argument) if isinstance(argument, Node) else None
    is_plain = fake.is_fake(value) or type(value) in (torch.Tensor, torch.nn.Parameter)
    return value if is_plain else None


def _is_tensor(argument: object) -> bool:
    return plain_tensor_of(argument) is not None


def _is_number(arguments: tuple[object, ...]) -> bool:
    """Return whether the first argument is a number: a constant, or a symbolic one."""
    return any(number_type(value_of(argument)) is not None for argument in arguments[:1])


def _is_default(signature: TorchSignature, name: str, value: object) -> bool:
    default = signature.defaults.get(name, signature)  # no argument is a signature
    return type(value) is type(default) and value == default


VIEWS: frozenset[Callable[..., object]] = frozenset(
    {
        torch.permute,
        torch.transpose,
        torch.t,
        torch.reshape,
        torch.flatten,
        torch.squeeze,
        torch.unsqueeze,
        torch.unbind,
        torch.chunk,
        torch.split,
    }
)
"""The functions of `torch_calls` whose result may share memory with an operand."""


def is_new(node: Node) -> bool:
    """Return whether a node's value is known to be unshared new memory."""
    call = call_of(node)
    return call is not None and call.function not in VIEWS


def may_escape(node: Node) -> bool:
    """Return whether the program can observe that a node's value shares memory.

    The value or a possible view of it is returned, written to, passed to a node that may do so, or
    read at its place in memory.
    """
    queue, seen = [node], {node}
    while queue:
        for user in queue.pop().users:
            if user.op == "output" or mutated_arguments(user) or not is_calm(user):
                return True
            if _reads_memory(user):
                return True
            if user not in seen and not is_new(user):
                seen.add(user)
                queue.append(user)
    return False


def _reads_memory(node: Node) -> bool:
    if node.target == "view":  # as another dtype
        return any(isinstance(each, torch.dtype) for each in (*node.args, *node.kwargs.values()))
    return getattr(node.target, "__name__", str(node.target)).startswith("as_strided")
