"""The role of each tensor of a case in the user's program: parameter, buffer or input.

Compilers treat them differently: `freezing` folds parameters, CUDA graphs do not copy tensors with
a static address. Dynamo records the source of each tensor, an input or attribute of the graph:

    the input `l_self_modules_c_parameters_weight_` with the source
    L['self']._modules['c']._parameters['weight'] is the parameter `c.weight`; its address is static
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from torch import Tensor
from torch.fx import GraphModule
from torch.nn import Parameter

from ctk.compiler.fx.walk import attribute_targets, fetch, placeholders
from ctk.compiler.torch_compat.dynamo import tensor_sources as torch_roles
from ctk.toolkit.case.formats.checked_types import Line
from ctk.toolkit.case.formats.schema import document

RoleKind = Literal["parameter", "buffer", "input"]
Static = Literal["guarded", "unguarded"]
"""Dynamo's term: whether a call with another address recompiles."""

HELD = "self."
"""Prefix of an attribute of the graph."""

_STEP = re.compile(r"\._(?:modules|parameters|buffers)\['([^']*)'\]|\['?([^'\]]*)'?\]|\.(\w+)")
_TABLE = re.compile(r"\._(parameters|buffers)\['[^']*'\]$")


@document
@dataclass(frozen=True, slots=True)
class Role:
    """The role of a tensor in the user's program.

    Attributes:
        kind: A tensor that is a plain attribute of a module is an input with a name.
        name: Its name in the user's module (`encoder.layers.0.weight`); empty if it is in none.
        static: Whether Dynamo guards its static address; None: the address may change.
    """

    kind: RoleKind
    name: Line = ""
    static: Static | None = None

    @property
    def is_held(self) -> bool:
        """Whether the user's module holds it, so that each call gets the same tensor."""
        return self.static is not None


def roles_of(gm: GraphModule, inputs: Sequence[object]) -> dict[str, Role]:
    """Return the roles of the tensors of a graph that Dynamo hands to its backend.

    Args:
        gm: As Dynamo gives it; Dynamo removes its sources later.

    Returns:
        The roles other than plain inputs; names start with the name of the module (`net.weight`)
        if there are several modules.
    """
    found = {key: _role(source, value) for key, source, value in _tensors(gm, inputs)}
    roots = {root for root, role in found.values() if role.name}
    return {
        key: replace(role, name=f"{root}.{role.name}") if len(roots) > 1 and role.name else role
        for key, (root, role) in found.items()
        if role != Role("input")
    }


def roles_in(gm: GraphModule, roles: Mapping[str, Role]) -> dict[str, Role]:
    """Return the roles of the tensors that a graph still has."""
    held = {HELD + target for target in attribute_targets(gm.graph)}
    known = {node.name for node in placeholders(gm)} | held
    return {key: role for key, role in roles.items() if key in known}


def _tensors(gm: GraphModule, inputs: Sequence[object]) -> Iterator[tuple[str, str, Tensor]]:
    for node, value in zip(placeholders(gm), inputs, strict=True):
        if isinstance(value, Tensor):
            yield node.name, torch_roles.placeholder_source(node) or "", value
    sources = torch_roles.attribute_sources(gm)
    for target in attribute_targets(gm.graph):
        value = fetch(gm, target)
        if isinstance(value, Tensor):
            yield HELD + target, sources.get(target, ""), value


def _role(source: str, value: Tensor) -> tuple[str, Role]:
    static = torch_roles.static_type(value)
    table = _TABLE.search(source)
    kind: RoleKind = "input"
    if isinstance(value, Parameter):
        kind = "parameter"
    elif table is not None and table[1] == "buffers":
        kind = "buffer"
    steps = [next(filter(None, match.groups()), "") for match in _STEP.finditer(source)]
    is_in_module = kind != "input" or (static is not None and len(steps) > 1)
    name = ".".join(steps[1:]) if is_in_module else ""
    return (steps[0] if steps else ""), Role(kind, name, static)
