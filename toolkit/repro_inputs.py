"""Write the inputs of a case as the body of the script's `inputs()` function.

Inputs that share a storage are written as views of one flat tensor, so that aliasing survives. Symbolic sizes become
marks on the tensors that carry them.
"""

import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch

from compiler.errors import CaseError
from toolkit.case import Case
from toolkit.repro_module import placeholder_names
from toolkit.repro_values import Sources, scalar_source, tensor_source, view_source


@dataclass(frozen=True, slots=True)
class Symbols:
    """How the symbolic sizes of a case come back.

    Attributes:
        read_from: For each placeholder that is a size: the tensor placeholder and dimension that it is read from.
        marked: For each tensor placeholder: its dynamic dimensions.
        static: For each tensor placeholder: its fixed dimensions; empty unless `free`.
        free: Whether some symbolic int is no tensor's size, so that only `dynamic=True` keeps it symbolic.
    """

    read_from: Mapping[str, tuple[str, int]]
    marked: Mapping[str, tuple[int, ...]]
    static: Mapping[str, tuple[int, ...]]
    free: bool


def plan_symbols(case: Case) -> Symbols:
    """Find where each symbolic size of a case comes from."""
    nodes = [node for node in case.graph.graph.nodes if node.op == "placeholder"]
    by_label = {str(label): node.name for node in nodes for label in (node.target, node.name)}
    values = dict(zip((node.name for node in nodes), case.inputs, strict=True))
    places: dict[str, tuple[str, int]] = {}
    marked: dict[str, tuple[int, ...]] = {}
    for label, dims in case.dynamic.items():
        name = by_label.get(label)
        tensor = values.get(name) if name else None
        if name is None or not isinstance(tensor, torch.Tensor):
            continue  # reduced away: the reduction need not edit `dynamic`
        symbolic = [(dim, symbol) for dim, symbol in enumerate(dims[: tensor.dim()]) if symbol]
        for dim, symbol in symbolic:
            places.setdefault(symbol, (name, dim))
        # Sizes 0 and 1 are always specialised: Dynamo refuses to mark them.
        marked[name] = tuple(dim for dim, _ in symbolic if tensor.size(dim) > 1)
    read_from = {
        by_label[symbol]: place
        for symbol, place in places.items()
        if symbol in by_label and _is_size(values, by_label[symbol], place)
    }
    is_dynamic = bool(case.dynamic)
    free = any(
        _is_symbolic(node, values[node.name], is_dynamic=is_dynamic) and node.name not in read_from
        for node in nodes
    )
    static = _static_dims(values, marked) if free else {}
    return Symbols(read_from, {name: dims for name, dims in marked.items() if dims}, static, free)


def inputs_body(case: Case, sources: Sources, symbols: Symbols) -> str:
    """Return the body of `inputs()`: a dict from placeholder names to values.

    Raises:
        CaseError: The case has not one value per placeholder, or a value that a repro cannot hold.
    """
    names = placeholder_names(case.graph)
    if len(names) != len(case.inputs):
        raise CaseError(
            f"case {case.name} has {len(case.inputs)} inputs for {len(names)} placeholders "
            f"({', '.join(names)}); capture it again"
        )
    lines: list[str] = []
    views = _shared_storages(names, case.inputs, sources, lines)
    entries = [
        f'"{name}": {views.get(name) or _source(value, name, sources)},'
        for name, value in zip(names, case.inputs, strict=True)
    ]
    entries_text = textwrap.indent("\n".join(entries), "    ")
    lines.append(f"values = {{\n{entries_text}\n}}" if entries else "values = {}")
    lines += [
        f'torch._dynamo.maybe_mark_dynamic(values["{name}"], {list(dims)})'
        for name, dims in symbols.marked.items()
    ]
    lines += [
        f'torch._dynamo.mark_static(values["{name}"], {list(dims)})'
        for name, dims in symbols.static.items()
        if dims
    ]
    lines.append("return values")
    return textwrap.indent("\n".join(lines), "    ")


def _source(value: object, name: str, sources: Sources) -> str:
    if isinstance(value, torch.Tensor):
        return tensor_source(value, name, sources)
    return scalar_source(value, name)


def _is_size(values: Mapping[str, object], name: str, place: tuple[str, int]) -> bool:
    tensor, dim = values[place[0]], place[1]
    return isinstance(tensor, torch.Tensor) and values[name] == tensor.size(dim)


def _is_symbolic(node: torch.fx.Node, value: object, *, is_dynamic: bool) -> bool:
    """Return whether an int is a symbolic size: beside symbolic sizes, Dynamo writes fixed ints as constants."""
    if not isinstance(value, int) or isinstance(value, bool):
        return False
    example = node.meta.get("example_value", node.meta.get("val"))
    return is_dynamic or node.type is torch.SymInt or isinstance(example, torch.SymInt)


def _static_dims(
    values: Mapping[str, object], marked: Mapping[str, Sequence[int]]
) -> dict[str, tuple[int, ...]]:
    """Return the dimensions that stay fixed, for `dynamic=True`, which would make all symbolic."""
    tensors = {name: value for name, value in values.items() if isinstance(value, torch.Tensor)}
    return {
        name: tuple(dim for dim in range(tensor.dim()) if dim not in marked.get(name, ()))
        for name, tensor in tensors.items()
    }


def _shared_storages(
    names: Sequence[str], inputs: Sequence[object], sources: Sources, lines: list[str]
) -> dict[str, str]:
    """Write each storage that several inputs share; return the sources of the inputs that are views of one."""
    groups: dict[int, list[tuple[str, torch.Tensor]]] = {}
    for name, value in zip(names, inputs, strict=True):
        if isinstance(value, torch.Tensor) and value.layout == torch.strided and value.numel():
            groups.setdefault(value.untyped_storage().data_ptr(), []).append((name, value))
    views: dict[str, str] = {}
    for members in groups.values():
        if len(members) > 1:
            views.update(_shared_storage(members, f"storage{len(lines)}", sources, lines))
    return views


def _shared_storage(
    members: Sequence[tuple[str, torch.Tensor]], name: str, sources: Sources, lines: list[str]
) -> dict[str, str]:
    first = members[0][1].detach()
    elements = first.untyped_storage().nbytes() // first.element_size()
    flat = first.as_strided((elements,), (1,), 0)
    sources.helpers.add("shared")
    lines.append(f"{name} = {tensor_source(torch.empty_like(flat).copy_(flat), name, sources)}")
    return {member: view_source(value, flat, name, sources) for member, value in members}
