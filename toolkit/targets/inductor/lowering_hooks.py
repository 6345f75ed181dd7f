"""Listen to Inductor while it lowers, fuses and generates code for the graph at hand.

`lowering_hooks` are installed with those of the passes (`hooks`). Everything that is not about an
observed graph goes straight through.
"""

from collections.abc import Iterator, Sequence
from types import ModuleType
from typing import Any

from ctk.compiler.fx.properties import is_random
from ctk.compiler.torch_compat.inductor import inductor_lowering
from ctk.toolkit.targets.inductor.compile_record import CompileRecord
from ctk.toolkit.targets.inductor.frames import KernelsVetoed
from ctk.toolkit.targets.inductor.kernel_parts import KernelPart, Launch
from ctk.toolkit.targets.inductor.lowering import Lowering
from ctk.toolkit.targets.inductor.regions import Call, Hook, divert


def lowering_hooks(compile_record: CompileRecord) -> Iterator[Hook]:
    """Yield each site to wrap, with its wrapper."""
    sites, lowering = inductor_lowering.lowering_sites(), compile_record.lowering
    yield sites.run_node, divert(lowering, _run_node)
    ask = divert(lowering, _falls_back)
    yield sites.falls_back, lambda method: classmethod(ask(method.__func__))
    yield sites.can_fuse, divert(lowering, _can_fuse)
    yield sites.candidates, divert(lowering, _find_candidates)
    yield sites.fuse, divert(lowering, _fuse)
    for site in sites.define_kernel:
        yield site, divert(lowering, _define_kernel)
    yield sites.call_kernel, divert(lowering, _call_kernel)
    yield sites.load, divert(lowering, _load)


def _run_node(lowering: Lowering, call: Call) -> Any:
    _, node = call.args
    with lowering.at(node):
        return call()


def _falls_back(lowering: Lowering, call: Call) -> bool:
    """Answer for torch's own bisector, whose class method Inductor asks."""
    _, backend, subsystem, *_ = call.args
    is_ours = (backend, subsystem) == ("inductor", "lowerings")
    return (is_ours and lowering.falls_back()) or call()


def _can_fuse(lowering: Lowering, call: Call) -> bool:
    _, first, second, *_ = call.args
    return lowering.fusions.can_fuse(first, second, call)


def _find_candidates(lowering: Lowering, call: Call) -> Any:
    return lowering.fusions.candidates(call)


def _fuse(lowering: Lowering, call: Call) -> Any:
    _, first, second, *_ = call.args
    lowering.fusions.record_made(first, second)
    return call()


def _define_kernel(lowering: Lowering, call: Call) -> Any:
    codegen, source, nodes, *more = call.args
    arguments = (*more, *call.keywords.values())
    pointers = inductor_lowering.pointers(codegen, arguments)
    outputs = inductor_lowering.outputs(nodes, arguments)
    name = call()
    source = inductor_lowering.final_source(source, name)
    _announce(lowering, name, source, nodes, pointers, outputs)
    return name


def _announce(
    lowering: Lowering,
    name: str,
    source: str,
    nodes: Any,
    pointers: dict[str, str],
    outputs: Sequence[inductor_lowering.Buffer],
) -> None:
    """Note a kernel, and ask whether it may be there; not when the graph is lowered once more."""
    origins = lowering.names(inductor_lowering.origins(nodes))
    if not origins or lowering.is_again:
        return
    kernel = lowering.numbering.kernel_id("inductor", f"{lowering.stage}.{name}")
    writes = {
        buffer.name: buffer.node.name
        for buffer in outputs
        if buffer.node is not None
        and not buffer.mutates
        and not inductor_lowering.is_written_again(buffer.name)
        and lowering.names([buffer.node])
    }
    if any(is_random(node) for node in lowering.graph.graph.nodes if node.name in origins):
        writes = {}  # run again, it draws other numbers
    suffix = ".cpp" if 'extern "C"' in source else ".py"
    part = KernelPart(kernel, name, source, suffix, origins, writes, pointers)
    part.vetoed = not lowering.numbering.allow_kernel(kernel)
    lowering.parts.append(part)


def _call_kernel(lowering: Lowering, call: Call) -> Any:
    """Write a call: which buffers the kernel that was just defined gets."""
    _, name, arguments, *_ = call.args
    if not lowering.is_again and lowering.parts and lowering.parts[-1].name == name:
        launch = _launch(lowering, lowering.parts[-1], tuple(map(str, arguments)))
        lowering.launches.append(launch)
    return call()


def _launch(lowering: Lowering, part: KernelPart, arguments: tuple[str, ...]) -> Launch:
    """Return the launch of a kernel; a buffer written in place also holds its former value.

    Two kinds of buffers hold no value of a node that is known here:

    1. A buffer that is changed in place: the value is that before or after the change.
    2. Memory that another buffer takes over in another layout: `buf1 = reinterpret_tensor(buf0)`.
    """
    reads: dict[str, str] = {}
    for argument in arguments:
        pointer = part.pointers.get(argument)
        same = [name for name, other in part.pointers.items() if other == pointer] or [argument]
        for name in same:
            node = inductor_lowering.buffer_node(name)
            if name in part.writes or node is None or not lowering.names([node]):
                continue
            if inductor_lowering.is_written_again(name):
                continue
            if name == argument or inductor_lowering.have_same_layout(name, argument):
                reads[argument] = node.name
    return Launch(part, arguments, reads)


def _load(lowering: Lowering, call: Call) -> Any:
    """Compile generated code; nothing is compiled if a kernel was vetoed."""
    if not lowering.is_again and lowering.find_vetoed_nodes():
        raise KernelsVetoed
    module = call()
    lowering.module = module if isinstance(module, ModuleType) else None
    return module
