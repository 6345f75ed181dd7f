"""Operators that `import torch` does not register: torch's module that does, by its text.

    prims::fma                                  torch._inductor.inductor_prims
    quantized_decomposed::quantize_per_tensor   torch.ao.quantization.fx._decomposed

A module registers an operator if its text calls one of torch's ways to register one, and has the
operator's name or schema as a string. Importing such a module of torch is harmless, so that the
name alone, from any file, may ask for it.
"""

import importlib
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import torch

from ctk.compiler.torch_compat.fx.operators import (
    CORE_NAMESPACES,
    TORCH_NAMESPACES,
    is_registered,
)

_NAMESPACES = CORE_NAMESPACES | TORCH_NAMESPACES
_REGISTERS = re.compile(rb"\b(custom_op|triton_op|define|_?make_prim|register_\w*prim)\(")
_LEFT_OUT = frozenset(("testing", "onnx", "benchmark", "__main__.py"))


def register_late(qualified: str) -> bool:
    """Import the module of torch that registers an operator (`prims::fma`); say whether it does."""
    for module in modules_that_register(qualified):
        try:
            importlib.import_module(module)
        except Exception:  # it needs another build of torch
            continue
        if is_registered(qualified):
            return True
    return False


def modules_that_register(qualified: str) -> Iterator[str]:
    """Yield the modules of torch whose text registers an operator of torch."""
    namespace, _, name = qualified.partition("::")
    if namespace not in _NAMESPACES or not name.isidentifier() or not name.isascii():
        return
    wanted = re.compile(rb"[\"']\s*(%s::)?%s[\"'(.]" % (namespace.encode(), name.encode()))
    for module, text in _registering_texts():
        if wanted.search(text):
            yield module


@cache
def _registering_texts() -> tuple[tuple[str, bytes], ...]:
    """Return the modules of torch that register operators in Python, with their texts."""
    root, found = Path(torch.__file__).parent, list[tuple[str, bytes]]()
    for path in sorted(root.rglob("*.py")):
        parts = path.relative_to(root).parts
        if _LEFT_OUT.isdisjoint(parts) and _REGISTERS.search(text := path.read_bytes()):
            names = parts[:-1] if path.name == "__init__.py" else (*parts[:-1], path.stem)
            found.append((".".join(("torch", *names)), text))
    return tuple(found)
