"""Write the inputs of a case as the body of the script's `inputs()` function.

Inputs that share a storage are written as views of one flat tensor, so that aliasing survives. So
is an input that is a part of its storage if the program calls `as_strided`, whose offset counts
from the start of the storage. Symbolic sizes become marks on the tensors.
"""

import textwrap
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import torch

from ctk.compiler.fx.clone import extent
from ctk.compiler.fx.walk import distinct_graphs
from ctk.toolkit.case.case import Case
from ctk.toolkit.case.graphs.value_types import symbol_of
from ctk.toolkit.case.inputs import named_inputs
from ctk.toolkit.repro.tensor_source import (
    Sources,
    dict_source,
    scalar_source,
    tensor_source,
    view_source,
)


@dataclass(frozen=True, slots=True)
class Marks:
    """Marks for Dynamo that make the same sizes symbolic again.

    Attributes:
        dynamic: For each tensor input: its symbolic dimensions.
        static: For each tensor input: its fixed dimensions; empty unless `free`.
        free: Whether a symbolic int is not the size of a tensor: it needs `dynamic=True`.
    """

    dynamic: Mapping[str, tuple[int, ...]]
    static: Mapping[str, tuple[int, ...]]
    free: bool


def plan_marks(case: Case, arguments: Sequence[str]) -> Marks:
    """Find which sizes must be symbolic.

    Args:
        arguments: The placeholders that `forward` takes, without sizes that it reads off tensors.
    """
    tensors = {k: v for k, v in named_inputs(case).items() if isinstance(v, torch.Tensor)}
    dynamic: dict[str, tuple[int, ...]] = {}
    for name, tensor in tensors.items():
        symbols = case.dynamic.get(name, ())
        # Sizes 0 and 1 are always fixed: Dynamo refuses to mark them.
        marked = [
            i for i, (s, n) in enumerate(zip(symbols, tensor.shape, strict=False)) if s and n > 1
        ]
        if marked:
            dynamic[name] = tuple(marked)
    free = bool(_free_sizes(case, arguments))
    static = {
        name: tuple(dim for dim in range(tensor.dim()) if dim not in dynamic.get(name, ()))
        for name, tensor in tensors.items()
    }
    return Marks(dynamic, {k: dims for k, dims in static.items() if dims and free}, free)


def _free_sizes(case: Case, arguments: Sequence[str]) -> list[str]:
    """Return the symbolic ints that are not the size of a tensor.

    Beside symbolic sizes, Dynamo writes fixed ints as constants: then every int is symbolic.
    """
    nodes = {node.name: node for node in case.graph.graph.find_nodes(op="placeholder")}
    values = named_inputs(case)
    ints = [name for name in arguments if type(values[name]) is int]
    return [n for n in ints if case.dynamic or symbol_of(nodes[n]) or nodes[n].type is torch.SymInt]


def inputs_body(
    case: Case, sources: Sources, marks: Marks, only: Collection[str] | None = None
) -> str:
    """Return the body of `inputs()`: a dict from placeholder names to values.

    Args:
        only: The placeholders to write; None: all.

    Raises:
        CaseError: Values and placeholders differ in number, or a repro cannot hold a value.
    """
    values = named_inputs(case)
    values = {name: v for name, v in values.items() if only is None or name in only}
    lines: list[str] = []
    views = _write_shared_storages(values, sources, lines, has_parts=_names_memory(case))
    entries = {
        name: views.get(name) or _source(value, name, sources) for name, value in values.items()
    }
    lines.append(f"values = {dict_source(entries)}")
    for mark, table in (("maybe_mark_dynamic", marks.dynamic), ("mark_static", marks.static)):
        lines += [f'torch._dynamo.{mark}(values["{k}"], {list(dims)})' for k, dims in table.items()]
    lines.append("return values")
    return textwrap.indent("\n".join(lines), "    ")


def _source(value: object, name: str, sources: Sources) -> str:
    if isinstance(value, torch.Tensor):
        return tensor_source(value, name, sources)
    return scalar_source(value, name)


def _names_memory(case: Case) -> bool:
    """Return whether the program calls `as_strided`, which makes views by offset."""
    return any(
        "as_strided" in str(getattr(node.target, "__name__", node.target))
        for graph in distinct_graphs(case.graph)
        for node in graph.graph.nodes
    )


def _write_shared_storages(
    inputs: Mapping[str, object], sources: Sources, lines: list[str], *, has_parts: bool
) -> dict[str, str]:
    """Write each storage that several inputs share; return the sources of its views."""
    groups: dict[int, list[tuple[str, torch.Tensor]]] = {}
    for name, value in inputs.items():
        if isinstance(value, torch.Tensor) and value.layout == torch.strided and value.numel():
            groups.setdefault(value.untyped_storage().data_ptr(), []).append((name, value))
    views: dict[str, str] = {}
    for members in groups.values():
        if len(members) > 1 or (has_parts and _is_part(members[0][1])):
            views.update(_write_shared_storage(members, f"storage{len(lines)}", sources, lines))
    return views


def _is_part(tensor: torch.Tensor) -> bool:
    """Return whether the storage of a tensor holds more than the tensor."""
    used = extent(tensor.shape, tensor.stride()) * tensor.element_size()
    return tensor.untyped_storage().nbytes() > used


def _write_shared_storage(
    members: Sequence[tuple[str, torch.Tensor]], name: str, sources: Sources, lines: list[str]
) -> dict[str, str]:
    first = members[0][1].detach()
    elements = first.untyped_storage().nbytes() // first.element_size()
    flat = first.as_strided((elements,), (1,), 0)
    sources.helpers.add("shared")
    lines.append(f"{name} = {tensor_source(torch.empty_like(flat).copy_(flat), name, sources)}")
    return {member: view_source(value, flat, name, sources) for member, value in members}
