"""Operators by name: their arguments' names; and what the dispatcher knows of a tensor."""

# What pyright says of private names is what this package is for.
# pyright: reportPrivateUsage=false, reportAttributeAccessIssue=false

from __future__ import annotations

from typing import Any

import torch

OPERATORS = (torch._ops.OpOverload, torch._ops.OpOverloadPacket)
"""The classes of `torch.ops.aten.add.Tensor` and of `torch.ops.aten.add` (torch 2.11, 2.13)."""


def argument_names(ns: str, operator: str) -> list[str]:
    """Return the arguments of `add.Tensor` or `abs`; none if no such operator is registered.

    Seen in torch 2.11 and 2.13: `_jit_get_schemas_for_operator`.
    """
    name, _, overload = operator.partition(".")
    for schema in torch._C._jit_get_schemas_for_operator(f"{ns}::{name}"):
        if schema.overload_name == overload.removeprefix("default"):
            return [each.name for each in schema.arguments]
    return []


def dispatch_key_set(tensor: torch.Tensor) -> int:
    """Return the dispatch keys of a tensor as torch's own files hold them (2.11, 2.13)."""
    keys: Any = torch._C._dispatch_keys(tensor)
    return int(keys.raw_repr())
