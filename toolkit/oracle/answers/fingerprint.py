"""The fingerprint of a case: two cases with the same one are the same question.

It covers the graph without its node names, the properties (tensor_text.py) and values of inputs and
constants, target, config and modes: everything on which an answer may depend, or a candidate would
get the answer of another one. Two candidates that are the same program, reached by different edits,
have one fingerprint. It is the same in every process, because the journal of one process is read by
another.
"""

import hashlib
import json
import re
import sys
import weakref
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import chain
from types import FunctionType
from typing import cast

import torch
from torch.fx import GraphModule, Node

from ctk.compiler.fx.canonical import graph_lines
from ctk.compiler.fx.clone import raw_bytes
from ctk.compiler.fx.walk import attribute_targets, fetch, input_names
from ctk.toolkit.case.case import Case
from ctk.toolkit.case.graphs.value_types import layout_symbols
from ctk.toolkit.case.roles import HELD
from ctk.toolkit.execution.private_copy import held_tensors, plain_attributes
from ctk.toolkit.oracle.answers.tensor_text import TensorTexts, parts_of

RECENT = 4

Versions = tuple[int, ...]


@dataclass(slots=True)
class Digests:
    """Digests of the contents of tensors, so that a large model is read once.

    A digest holds for a tensor object as long as it lives and is not written to. The fingerprints
    of the last few cases are kept as well: several layers ask for each.
    """

    known: dict[int, tuple[weakref.ref[torch.Tensor], int, str]] = field(
        default_factory=dict[int, tuple[weakref.ref[torch.Tensor], int, str]]
    )
    recent: deque[tuple[weakref.ref[Case], Versions, str]] = field(
        default_factory=lambda: deque(maxlen=RECENT)
    )

    def of(self, tensor: torch.Tensor) -> str:
        """Return the digest of the values of a tensor of a plain class."""
        version = -1 if tensor.is_inference() else tensor._version
        found, seen, digest = self.known.get(id(tensor), (None, -1, ""))
        if found is not None and found() is tensor and seen == version:
            return digest
        content = hashlib.blake2b(digest_size=16)
        for part in parts_of(tensor.detach()):
            content.update(f"{part.dtype} {tuple(part.shape)}".encode())
            content.update(raw_bytes(part.cpu()).numpy().data if part.numel() else b"")
        digest = content.hexdigest()
        if version >= 0:  # an inference tensor does not count its writes
            number, known = id(tensor), self.known
            ref = weakref.ref(tensor, lambda _: known.pop(number, None) and None)
            known[number] = (ref, version, digest)
        return digest


def fingerprint(case: Case, digests: Digests | None = None) -> str:
    """Return the fingerprint of a case: 32 hex digits."""
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
    """Return the write count of each tensor; -1 for an inference tensor."""
    held = chain(case.graph.parameters(), case.graph.buffers())
    given = (value for value in case.inputs if isinstance(value, torch.Tensor))
    return tuple(-1 if each.is_inference() else each._version for each in chain(given, held))


@dataclass(frozen=True, slots=True)
class _Texts:
    """Texts of one fingerprint by object: many nodes call one function."""

    tensors: TensorTexts
    functions: dict[int, str] = field(default_factory=dict[int, str])

    def of_function(self, function: object) -> str:
        known = self.functions.get(id(function))
        if known is None:
            known = self.functions[id(function)] = function_text(function)
        return known


def _fingerprint(case: Case, digests: Digests) -> str:
    texts = _Texts(TensorTexts(digests.of))
    parts = [
        case.target,
        json.dumps(dict(case.config), sort_keys=True, default=repr),
        repr(case.modes),
        *(_input_text(value, texts.tensors) for value in case.inputs),
        *_dynamic_texts(case),
        *_role_texts(case),
        *_graph_texts(case.graph, texts),
    ]
    return hashlib.blake2b("\n".join(parts).encode(), digest_size=16).hexdigest()


def _dynamic_texts(case: Case) -> Iterable[str]:
    """Return the symbolic sizes, strides and offsets by position; symbols become numbers."""
    layouts = layout_symbols(case.graph, case.inputs, case.dynamic)
    numbers: dict[str, int] = {}
    for position, name in enumerate(input_names(case.graph)):
        symbols = (*case.dynamic.get(name, ()), *layouts.get(name, ()))
        for place, symbol in enumerate(symbols):
            if symbol is not None:
                yield f"dynamic {position} {place} {numbers.setdefault(symbol, len(numbers))}"


def _role_texts(case: Case) -> Iterable[str]:
    """Return which inputs and constants are parameters, and have static addresses, by position."""
    if not case.roles:
        return
    held = (HELD + target for target in attribute_targets(case.graph.graph))
    for position, name in enumerate(chain(input_names(case.graph), held)):
        if (role := case.roles.get(name)) is not None:
            yield f"role {position} {role.kind} {role.static}"


def _input_text(value: object, tensors: TensorTexts) -> str:
    is_tensor = isinstance(value, torch.Tensor)
    return tensors.of(value) if is_tensor else f"{type(value).__name__} {value!r}"


def _graph_texts(gm: GraphModule, texts: _Texts) -> Iterable[str]:
    return graph_lines(gm, partial(_target_text, texts=texts), _argument_text)


def _target_text(gm: GraphModule, node: Node, texts: _Texts) -> str:
    if node.op in ("placeholder", "output"):
        return ""
    if node.op in ("get_attr", "call_module"):
        return _object_text(fetch(gm, node.target), texts)
    return node.target if isinstance(node.target, str) else texts.of_function(node.target)


def function_text(function: object) -> str:
    """Return the names of a function, and its address where they do not lead back to it."""
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


def _object_text(found: object, texts: _Texts) -> str:
    if isinstance(found, GraphModule):
        return "{" + "; ".join(_graph_texts(found, texts)) + "}"
    if isinstance(found, torch.Tensor):
        return texts.tensors.of(found)
    if isinstance(found, torch.nn.Module):
        return " ".join([repr(found), *_module_texts(found, texts)])
    if isinstance(found, (list, tuple)):
        items = cast("Sequence[object]", found)
        return f"[{', '.join(_object_text(item, texts) for item in items)}]"
    return repr(found)


def _module_texts(called: torch.nn.Module, texts: _Texts) -> Iterable[str]:
    """Return the texts of a module and its submodules, with buffers that are not saved."""
    for path, module in called.named_modules():
        kind = f"{type(module).__module__}.{type(module).__qualname__}"
        yield f"{path} {kind} {module.training} {plain_attributes(module)}"
    for path, tensor in held_tensors(called):
        yield f"{path} {texts.tensors.of(tensor)}"


def _argument_text(argument: object) -> str:
    return f"{type(argument).__name__} {argument!r}"
