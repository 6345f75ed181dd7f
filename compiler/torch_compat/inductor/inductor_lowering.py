"""Inductor below the passes: lowerings, fusions, generated kernels and the module that calls them.

A "scheduler node" is Inductor's unit of fusion: one loop nest or one call of a library; each knows
the FX nodes that it computes.
"""

# pyright: reportPrivateUsage=false, reportAttributeAccessIssue=false

from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Any

from torch.fx import Node

from ctk.compiler.torch_compat.fx.operator_types import OpOverload
from ctk.compiler.torch_compat.inductor.inductor_api import _inductor
from ctk.compiler.torch_compat.inductor.patch_sites import Site


@dataclass(frozen=True, slots=True)
class LoweringSites:
    """The functions that turn a graph into kernels.

    Attributes:
        run_node: `(lowering, node) -> value`: makes Inductor's IR of one node.
        falls_back: Class method `(backend, subsystem, debug_info) -> bool`; with `inductor` and
            `lowerings` it decides whether the current node falls back to ATen.
        can_fuse: `(scheduler, node1, node2, ...) -> bool`.
        candidates: `(scheduler, ...) -> pairs`: asks `can_fuse` without fusing anything.
        fuse: `(scheduler, node1, node2, ...) -> node`: fuses two nodes.
        define_kernel: `(codegen, source, nodes, ...) -> name`, for C++ and for Triton.
        call_kernel: `(wrapper, name, arguments, ...)`: writes the call of a kernel.
        load: `(lowering, code) -> module`: compiles and loads the generated code.
    """

    run_node: Site
    falls_back: Site
    can_fuse: Site
    candidates: Site
    fuse: Site
    define_kernel: tuple[Site, ...]
    call_kernel: Site
    load: Site


def lowering_sites() -> LoweringSites:
    """Return the places to wrap."""
    graph = _inductor("graph").GraphLowering
    scheduler = _inductor("scheduler").Scheduler
    cpp = _inductor("codegen.cpp").CppScheduling
    triton = _inductor("codegen.triton").TritonScheduling
    return LoweringSites(
        run_node=Site(graph, "run_node"),
        falls_back=Site(_inductor("compiler_bisector").CompilerBisector, "disable_subsystem"),
        can_fuse=Site(scheduler, "can_fuse"),
        candidates=Site(scheduler, "get_possible_fusions"),
        fuse=Site(scheduler, "fuse_two_nodes"),
        define_kernel=(Site(cpp, "define_kernel"), Site(triton, "define_kernel")),
        call_kernel=Site(_inductor("codegen.wrapper").PythonWrapperCodegen, "generate_kernel_call"),
        load=Site(graph, "_compile_to_module_lines"),
    )


def lowered_operator(node: Node) -> str | None:
    """Return the operator (`aten.add.Tensor`) that Inductor lowers itself, else None."""
    target = node.target
    if node.op != "call_function" or not isinstance(target, OpOverload):
        return None
    lowering = _inductor("lowering").lowerings.get(target)
    if lowering is None or getattr(lowering, "_is_fallback_handler", False):
        return None
    return str(target)


@contextmanager
def falling_back(node: Node) -> Generator[None]:
    """Let a node with a lowering of the user fall back; Inductor asks about its own ones only."""
    from torch._library.utils import is_builtin

    target, table = node.target, _inductor("lowering").lowerings
    if not isinstance(target, OpOverload) or is_builtin(target) or target not in table:
        yield
        return
    lowering = table[target]
    table[target] = _inductor("lowering").fallback_handler(target, add_to_fallback_set=False)
    try:
        yield
    finally:
        table[target] = lowering


@dataclass(frozen=True, slots=True)
class Buffer:
    """A piece of memory that generated code fills.

    Attributes:
        node: The FX node whose value it holds; None for an intermediate that no node names.
        mutates: Whether it stands for another buffer that is written in place.
    """

    name: str
    node: Node | None
    mutates: bool = False


def origins(nodes: Sequence[Any]) -> tuple[Node, ...]:
    """Return the FX nodes that scheduler nodes compute; markers between them are passed over."""
    found: dict[Node, None] = {}
    for node in _simple(nodes):
        if node.node is not None:
            found.update(dict.fromkeys(n for n in node.node.get_origins() if isinstance(n, Node)))
    return tuple(found)


def outputs(nodes: Sequence[Any], arguments: Sequence[Any]) -> tuple[Buffer, ...]:
    """Return the buffers that scheduler nodes write; a buffer of one kernel alone has no memory.

    Args:
        arguments: As of `pointers`. A Triton kernel adds its own buffers to those of the graph only
            after it was defined.
    """
    graph = _inductor("virtualized").V.graph
    local: set[str] = set()
    for each in (graph, *arguments):
        local |= {*getattr(each, "removed_buffers", ()), *getattr(each, "inplaced_to_remove", ())}
    found = (_buffer(output) for node in _simple(nodes) for output in node.get_outputs())
    return tuple(buffer for buffer in found if buffer.name not in local)


def names(node: Any) -> frozenset[str]:
    """Return the names of the scheduler nodes inside one, which may be fused: `op0`, `op1`."""
    return frozenset(each.get_name() for each in node.get_nodes())


def _simple(nodes: Sequence[Any]) -> Iterator[Any]:
    base = _inductor("scheduler").BaseSchedulerNode
    for node in nodes:
        if isinstance(node, base):
            yield from node.get_nodes()


def _buffer(output: Any) -> Buffer:
    buffer = output.node
    origin = buffer.get_origin_node() if buffer is not None else None
    return Buffer(output.get_name(), origin, bool(output.get_mutations()))


def origin_of(value: object) -> Node | None:
    """Return the FX node that a piece of Inductor's IR computes; None if it is none, or unknown."""
    if not isinstance(value, _inductor("ir").IRNode):
        return None
    return getattr(value, "get_origin_node", lambda: None)()


def buffer_node(name: str) -> Node | None:
    """Return the FX node whose value a buffer holds; called while code is generated."""
    buffer: Any = _inductor("virtualized").V.graph.try_get_buffer(name)
    return getattr(buffer, "get_origin_node", lambda: None)()


def have_same_layout(name: str, other: str) -> bool:
    """Return whether two buffers have equal sizes, strides and types; called as `buffer_node` is.

    The second may lie in the memory of the first all the same.
    """
    graph = _inductor("virtualized").V.graph
    layouts = [_layout(graph.try_get_buffer(each)) for each in (name, other)]
    return layouts[0] is not None and layouts[0] == layouts[1]


def _layout(buffer: Any) -> tuple[object, ...] | None:
    if buffer is None:
        return None
    layout = buffer.get_layout()
    return tuple(layout.size), tuple(layout.stride), layout.offset, layout.dtype


def is_written_again(name: str) -> bool:
    """Return whether a buffer is changed in place after it was made."""
    return name in _inductor("virtualized").V.graph.mutated_buffers


def pointers(codegen: Any, arguments: Sequence[Any]) -> dict[str, str]:
    """Return the name of each buffer in a kernel's source: `{"buf0": "out_ptr0"}`.

    Args:
        arguments: Arguments of `define_kernel` after the nodes: for C++ none or the kernel's
            arguments, for Triton the kernel.
    """
    given = next(iter(arguments), None)
    args: Any = getattr(given, "args", given)
    if args is None:
        args = getattr(getattr(codegen, "kernel_group", None), "args", None)
    if not hasattr(args, "inplace_buffers"):
        return {}
    known = {**args.input_buffers, **args.output_buffers}
    known |= {name: getattr(b, "inner_name", b) for name, b in args.inplace_buffers.items()}
    return {name: inner for name, inner in known.items() if isinstance(inner, str)}


def final_source(source: str, name: str) -> str:
    """Return a kernel's source as it is compiled: placeholders for its name are filled in."""
    placeholder = _inductor("utils").Placeholder
    for each in (placeholder.DESCRIPTIVE_NAME, placeholder.KERNEL_NAME):
        source = source.replace(str(each), name)
    return source.replace("#pragma CMT", "//" if 'extern "C"' in source else "#")


def options_set(values: Mapping[str, object]) -> AbstractContextManager[object]:
    """Set options of Inductor for a region."""
    return _inductor("config").patch(dict(values))
