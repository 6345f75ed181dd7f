"""Remember what an oracle answered, so that the same question is never asked twice.

A question is known by its fingerprint: the graph without its node names, what the inputs are
(dtype, shape, strides, device, gradient, contents), target, config and modes. Two candidates that
were reached on different ways and are the same program have one fingerprint.
"""

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import torch
from torch.fx import GraphModule, Node

from ctk.compiler.fx.walk import fetch
from ctk.toolkit.case.case import Case
from ctk.toolkit.formats.buildable import raw_bytes
from ctk.toolkit.oracle.judgement import Judgement


@dataclass(slots=True)
class Cache:
    """Judgements by fingerprint, and how often they were used."""

    judgements: dict[str, Judgement] = field(default_factory=dict[str, Judgement])
    hits: int = 0

    def find(self, fingerprint: str) -> Judgement | None:
        """Return the remembered answer, counting it as a hit, or None."""
        found = self.judgements.get(fingerprint)
        self.hits += found is not None
        return found

    def add(self, fingerprint: str, judgement: Judgement) -> None:
        """Remember an answer."""
        self.judgements[fingerprint] = judgement


def fingerprint(case: Case) -> str:
    """Return the fingerprint of the question that a case asks: 32 hex digits."""
    parts = [
        case.target,
        json.dumps(dict(case.config), sort_keys=True, default=repr),
        repr(case.modes),
        *(_input_text(value) for value in case.inputs),
        *_dynamic_texts(case),
        *_graph_texts(case.graph),
    ]
    return hashlib.blake2b("\n".join(parts).encode(), digest_size=16).hexdigest()


def _dynamic_texts(case: Case) -> Iterable[str]:
    """Return the symbolic sizes by position of the input; symbols are numbered, not named."""
    names = [node.name for node in case.graph.graph.nodes if node.op == "placeholder"]
    numbers: dict[str, int] = {}
    for position, name in enumerate(names):
        for dim, symbol in enumerate(case.dynamic.get(name, ())):
            if symbol is not None:
                yield f"dynamic {position} {dim} {numbers.setdefault(symbol, len(numbers))}"


def _input_text(value: object) -> str:
    if not isinstance(value, torch.Tensor):
        return f"{type(value).__name__} {value!r}"
    return f"{tensor_text(value)} {type(value).__name__} {value.requires_grad}"


def tensor_text(tensor: torch.Tensor) -> str:
    """Return dtype, shape, strides, device and a digest of a tensor's contents."""
    meta = f"{tensor.dtype} {tuple(tensor.shape)} {tensor.stride()} {tensor.device}"
    if tensor.layout != torch.strided or tensor.is_meta:
        return meta
    plain = tensor.detach().resolve_conj().resolve_neg().cpu()
    content = raw_bytes(plain).numpy().data if plain.numel() else b""
    return f"{meta} {hashlib.blake2b(content, digest_size=16).hexdigest()}"


def _graph_texts(gm: GraphModule) -> Iterable[str]:
    numbers: dict[Node, int] = {}
    for number, node in enumerate(gm.graph.nodes):
        arguments = f"{_argument_text(node.args, numbers)} {_argument_text(node.kwargs, numbers)}"
        yield f"{node.op} {_target_text(gm, node)} {arguments}"
        numbers[node] = number


def _target_text(gm: GraphModule, node: Node) -> str:
    if node.op in ("placeholder", "output"):
        return ""
    if node.op in ("get_attr", "call_module"):
        return _object_text(fetch(gm, node.target))
    if isinstance(node.target, str):
        return node.target
    module = getattr(node.target, "__module__", None)
    return f"{module} {getattr(node.target, '__qualname__', '')} {node.target}"


def _object_text(found: object) -> str:
    if isinstance(found, GraphModule):
        return "{" + "; ".join(_graph_texts(found)) + "}"
    if isinstance(found, torch.Tensor):
        return tensor_text(found)
    if isinstance(found, torch.nn.Module):
        state = (f"{name} {tensor_text(tensor)}" for name, tensor in found.state_dict().items())
        return f"{found!r} {' '.join(state)}"
    return repr(found)


def _argument_text(argument: object, numbers: Mapping[Node, int]) -> str:
    if isinstance(argument, Node):
        return f"%{numbers[argument]}"
    if isinstance(argument, (tuple, list)):
        inner = ", ".join(_argument_text(item, numbers) for item in argument)
        return f"({inner})" if isinstance(argument, tuple) else f"[{inner}]"
    if isinstance(argument, Mapping):
        items = sorted((str(key), value) for key, value in argument.items())
        return "{" + ", ".join(f"{k}: {_argument_text(v, numbers)}" for k, v in items) + "}"
    if isinstance(argument, slice):
        bounds = (argument.start, argument.stop, argument.step)
        return f"slice{_argument_text(bounds, numbers)}"
    return f"{type(argument).__name__} {argument!r}"
