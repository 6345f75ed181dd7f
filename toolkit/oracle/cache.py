"""Remember what an oracle answered, so that the same question is never asked twice.

A question is known by its fingerprint: the graph without its node names, what the inputs are
(dtype, shape, strides, device, gradient, contents, which share memory), target, config and modes.
Two candidates that were reached on different ways and are the same program have one fingerprint; it
is the same in every process, because the journal of an operation is read by another one.
"""

import hashlib
import json
import re
import sys
import weakref
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import chain
from types import FunctionType

import torch
from torch.fx import GraphModule, Node

from ctk.compiler.fx.walk import fetch, input_names
from ctk.repro_templates.plain_parts import PLAIN_CLASSES, plain_parts
from ctk.toolkit.case.case import Case
from ctk.toolkit.case.judgement import Judgement
from ctk.toolkit.formats.buildable import raw_bytes

RECENT = 4

Versions = tuple[int, ...]


@dataclass(slots=True)
class Digests:
    """Digests of tensors' contents: those of a large model are read once, not for each question.

    A tensor is known by its identity, as long as it lives and is not written to. The fingerprints
    of the last few cases are kept, too: a question passes through several hands.
    """

    known: dict[int, tuple[weakref.ref[torch.Tensor], int, str]] = field(
        default_factory=dict[int, tuple[weakref.ref[torch.Tensor], int, str]]
    )
    recent: deque[tuple[weakref.ref[Case], Versions, str]] = field(
        default_factory=lambda: deque(maxlen=RECENT)
    )

    def of(self, tensor: torch.Tensor) -> str:
        """Return the digest of the contents of a strided tensor."""
        version = -1 if tensor.is_inference() else tensor._version
        found, seen, digest = self.known.get(id(tensor), (None, -1, ""))
        if found is not None and found() is tensor and seen == version:
            return digest
        plain = tensor.detach().resolve_conj().resolve_neg().cpu()
        content = raw_bytes(plain).numpy().data if plain.numel() else b""
        digest = hashlib.blake2b(content, digest_size=16).hexdigest()
        if version >= 0:  # an inference tensor does not say when it is written to
            number, known = id(tensor), self.known
            ref = weakref.ref(tensor, lambda _: known.pop(number, None) and None)
            known[number] = (ref, version, digest)
        return digest


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


def fingerprint(case: Case, digests: Digests | None = None) -> str:
    """Return the fingerprint of the question that a case asks: 32 hex digits.

    Args:
        case: Only read.
        digests: Remembers those of the tensors; a caller with many questions keeps one.
    """
    digests = digests or Digests()
    versions = _versions(case)
    for each, seen, known in tuple(digests.recent):
        if each() is case and seen == versions:
            return known
    found = _fingerprint(case, digests)
    if -1 not in versions:
        digests.recent.append((weakref.ref(case), versions, found))
    return found


def _versions(case: Case) -> Versions:
    """Return how often each tensor was written to; -1 for one that does not say."""
    held = chain(case.graph.parameters(), case.graph.buffers())
    given = (value for value in case.inputs if isinstance(value, torch.Tensor))
    return tuple(-1 if each.is_inference() else each._version for each in chain(given, held))


def _fingerprint(case: Case, digests: Digests) -> str:
    parts = [
        case.target,
        json.dumps(dict(case.config), sort_keys=True, default=repr),
        repr(case.modes),
        *(_input_text(value, digests) for value in case.inputs),
        *_sharing_texts(case),
        *_dynamic_texts(case),
        *_static_texts(case),
        *_graph_texts(case.graph, digests),
    ]
    return hashlib.blake2b("\n".join(parts).encode(), digest_size=16).hexdigest()


def _sharing_texts(case: Case) -> Iterable[str]:
    """Return which inputs lie in the memory of an earlier one, and where in it."""
    first: dict[int, int] = {}
    for position, value in enumerate(case.inputs):
        if not isinstance(value, torch.Tensor) or type(value) not in PLAIN_CLASSES:
            continue
        if value.layout == torch.strided and not value.is_meta:
            address = value.untyped_storage().data_ptr()
            owner = first.setdefault(address, position) if address else position
            if owner != position:
                yield f"shares {position} {owner} {value.storage_offset()}"


def _dynamic_texts(case: Case) -> Iterable[str]:
    """Return the symbolic sizes by position of the input; symbols are numbered, not named."""
    names = [node.name for node in case.graph.graph.nodes if node.op == "placeholder"]
    numbers: dict[str, int] = {}
    for position, name in enumerate(names):
        for dim, symbol in enumerate(case.dynamic.get(name, ())):
            if symbol is not None:
                yield f"dynamic {position} {dim} {numbers.setdefault(symbol, len(numbers))}"


def _static_texts(case: Case) -> Iterable[str]:
    """Return which inputs have static addresses, by position; names make no difference."""
    for position, name in enumerate(input_names(case.graph)):
        if (role := case.roles.get(name)) is not None and role.static:
            yield f"static {position} {role.static}"


def _input_text(value: object, digests: Digests) -> str:
    if not isinstance(value, torch.Tensor):
        return f"{type(value).__name__} {value!r}"
    return f"{tensor_text(value, digests)} {type(value).__name__} {value.requires_grad}"


def tensor_text(tensor: torch.Tensor, digests: Digests | None = None) -> str:
    """Return dtype, shape, strides, device and a digest of a tensor's contents."""
    if type(tensor) not in PLAIN_CLASSES:
        parts = plain_parts(tensor).items()
        return " ".join(f"{place} {tensor_text(part, digests)}" for place, part in parts)
    meta = f"{tensor.dtype} {tuple(tensor.shape)} {tensor.stride()} {tensor.device}"
    if tensor.layout != torch.strided or tensor.is_meta:
        return meta
    return f"{meta} {(digests or Digests()).of(tensor)}"


def _graph_texts(gm: GraphModule, digests: Digests) -> Iterable[str]:
    numbers: dict[Node, int] = {}
    for number, node in enumerate(gm.graph.nodes):
        arguments = f"{_argument_text(node.args, numbers)} {_argument_text(node.kwargs, numbers)}"
        yield f"{node.op} {_target_text(gm, node, digests)} {arguments}"
        numbers[node] = number


def _target_text(gm: GraphModule, node: Node, digests: Digests) -> str:
    if node.op in ("placeholder", "output"):
        return ""
    if node.op in ("get_attr", "call_module"):
        return _object_text(fetch(gm, node.target), digests)
    return node.target if isinstance(node.target, str) else function_text(node.target)


def function_text(function: object) -> str:
    """Return the names of a function, and its address only where these do not lead to it."""
    module = str(getattr(function, "__module__", None))
    name = str(getattr(function, "__qualname__", ""))
    text = f"{module} {name} {function}"
    if isinstance(function, FunctionType):
        found: object = sys.modules.get(module)
        for part in name.split("."):
            found = getattr(found, part, None)
        if found is not function:
            return text
    return re.sub(r" at 0x[0-9a-f]+", "", text)


def _object_text(found: object, digests: Digests) -> str:
    if isinstance(found, GraphModule):
        return "{" + "; ".join(_graph_texts(found, digests)) + "}"
    if isinstance(found, torch.Tensor):
        return tensor_text(found, digests)
    if isinstance(found, torch.nn.Module):
        pairs = found.state_dict(keep_vars=True).items()
        state = (f"{name} {tensor_text(tensor, digests)}" for name, tensor in pairs)
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
