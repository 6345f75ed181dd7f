"""Choose the overload of each op, remove it from the graph, and check TorchScript's choice.

TorchScript resolves an overload from the types of the arguments. The choice is not left to luck:
the wanted overloads are counted before they are stripped, and compared with those of the scripted
graph.
"""

from collections import Counter
from typing import Any, cast

from torch.fx import Graph, Node

from ctk.compiler.codegen.torchscript.refuse import refusal
from ctk.compiler.errors import CodegenUnsupported
from ctk.compiler.fx.types import number_type, value_of
from ctk.compiler.torch_compat.fx import arguments, operators
from ctk.compiler.torch_compat.torchscript import torchscript_api as torchscript

_TWIN = "hacked_twin"
"""Marks TorchScript's overload of a `Tensor?[]` op for lists without None; it is the same op."""


def take_scalar_overloads(graph: Graph) -> None:
    """aten.add.Tensor(x, 2) -> aten.add.Scalar(x, 2): a number where the schema has a Tensor.

    Both make the same wrapped number of it, so values and type promotion stay (numerics: exact).
    TorchScript has no conversion from a number to a Tensor.

    Raises:
        CodegenUnsupported: The op has no overload that takes a number there.
    """
    for node in overload_nodes(graph):
        wanted = _types_with_numbers(node)
        if wanted is not None:
            node.target = _overload_with(node, wanted)


def strip_overloads(graph: Graph) -> None:
    """aten.add.Tensor(...) -> aten.add(...): TorchScript cannot call an overload by name."""
    for node in overload_nodes(graph):
        node.target = cast("Any", node.target).overloadpacket


def count_overloads(graph: Graph) -> Counter[str]:
    """Return how often each overload is called: `{"aten::add.Tensor": 2, "aten::relu": 1}`."""
    return Counter(_jit_name(node.target) for node in overload_nodes(graph))


def check_overloads(wanted: Counter[str], scripted: object) -> None:
    """Compare the overloads that TorchScript chose with `count_overloads` of the graph before.

    Raises:
        CodegenUnsupported: TorchScript resolved an op to another overload, which may compute
            something else, or dropped one: a random op that nothing reads still advances the random
            state in eager.
    """
    chosen = Counter(_without_twin(name) for name in torchscript.operators(scripted))
    missing = wanted - chosen
    if missing:
        name = min(missing)
        others = sorted(other for other in chosen - wanted if _packet(other) == _packet(name))
        if not others:
            raise CodegenUnsupported(f"TorchScript drops or replaces a call of {name}")
        raise CodegenUnsupported(f"TorchScript takes {name} for {', '.join(others)}")


def overload_nodes(graph: Graph) -> list[Node]:
    """Return the nodes that call an overload, in order."""
    return [node for node in graph.nodes if operators.kind_of(node.target) == "overload"]


def _jit_name(target: object) -> str:
    return operators.qualified_name_of(target).removesuffix(".default")


def _without_twin(name: str) -> str:
    """`aten::f.Tensor_hacked_twin` -> `aten::f.Tensor`, `aten::g.hacked_twin` -> `aten::g`."""
    return name.removesuffix(_TWIN).rstrip("._") if name.endswith(_TWIN) else name


def _packet(name: str) -> str:
    return name.split(".", 1)[0]


def _types_with_numbers(node: Node) -> dict[str, str] | None:
    """Return the schema's types, `number` where the node passes one as Tensor; None if nowhere."""
    types = dict(arguments.names_and_types(node.target))
    given = dict(zip(types, node.args, strict=False)) | node.kwargs
    numbers = [
        name for name, value in given.items() if types[name] == "Tensor" and is_number(value)
    ]
    return {**types, **dict.fromkeys(numbers, "number")} if numbers else None


def _overload_with(node: Node, types: dict[str, str]) -> Any:
    packet = cast("Any", node.target).overloadpacket
    overloads = (getattr(packet, name) for name in packet.overloads())
    for overload in overloads:
        if dict(arguments.names_and_types(overload)) == types:
            return overload
    number = next(name for name in types if types[name] == "number")
    raise refusal(node, f"a number as Tensor argument {number!r}, and no overload that takes one")


def is_number(value: object) -> bool:
    """Return whether an argument is a Python number or a node that holds a symbolic one."""
    value = value_of(value)
    return number_type(value) is not None or isinstance(value, complex)
