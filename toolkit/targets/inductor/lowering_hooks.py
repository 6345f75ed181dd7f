"""Listen to Inductor while it lowers, fuses and generates code for the graph at hand.

`lowering_hooks` are installed with those of the passes (`hooks`). Everything that is not about an
observed graph goes straight through.
"""

from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

from ctk.compiler.fx.properties import is_random
from ctk.compiler.torch_compat.inductor import inductor_lowering
from ctk.compiler.torch_compat.inductor.patch_sites import Site
from ctk.toolkit.targets.inductor.compile_record import CompileRecord
from ctk.toolkit.targets.inductor.frames import KernelsVetoed
from ctk.toolkit.targets.inductor.kernel_parts import KernelPart, Launch
from ctk.toolkit.targets.inductor.lowering import Lowering

Function = Callable[..., Any]


def lowering_hooks(session: CompileRecord) -> Iterator[tuple[Site, Callable[[Any], Any]]]:
    """Yield each site to wrap, with its wrapper."""
    sites = inductor_lowering.lowering_sites()
    yield sites.run_node, lambda f: _run_node(session, f)
    yield sites.falls_back, lambda f: _falls_back(session, f)
    yield sites.can_fuse, lambda f: _can_fuse(session, f)
    yield sites.candidates, lambda f: _candidates(session, f)
    yield sites.fuse, lambda f: _fuse(session, f)
    for site in sites.define_kernel:
        yield site, lambda f: _define_kernel(session, f)
    yield sites.call_kernel, lambda f: _call_kernel(session, f)
    yield sites.load, lambda f: _load(session, f)


def _run_node(session: CompileRecord, original: Function) -> Function:
    def run(interpreter: Any, node: Any) -> Any:
        lowering = session.lowering()
        if lowering is None:
            return original(interpreter, node)
        with lowering.at(node):
            return original(interpreter, node)

    return run


def _falls_back(session: CompileRecord, original: Any) -> Any:
    """Wrap the class method by which Inductor asks torch's own bisector."""

    def ask_fallback(cls: Any, backend: str, subsystem: str, *args: Any, **kwargs: Any) -> bool:
        lowering = session.lowering()
        is_ours = (backend, subsystem) == ("inductor", "lowerings")
        if lowering is not None and is_ours and lowering.falls_back():
            return True
        return original.__func__(cls, backend, subsystem, *args, **kwargs)

    return classmethod(ask_fallback)


def _can_fuse(session: CompileRecord, original: Function) -> Function:
    def can_fuse(scheduler: Any, first: Any, second: Any, *args: Any, **kwargs: Any) -> Any:
        def ask() -> Any:
            return original(scheduler, first, second, *args, **kwargs)

        lowering = session.lowering()
        return ask() if lowering is None else lowering.fusions.can_fuse(first, second, ask)

    return can_fuse


def _candidates(session: CompileRecord, original: Function) -> Function:
    def candidates(*args: Any, **kwargs: Any) -> Any:
        lowering = session.lowering()
        if lowering is None:
            return original(*args, **kwargs)
        return lowering.fusions.candidates(lambda: original(*args, **kwargs))

    return candidates


def _fuse(session: CompileRecord, original: Function) -> Function:
    def fuse(scheduler: Any, first: Any, second: Any, *args: Any, **kwargs: Any) -> Any:
        lowering = session.lowering()
        if lowering is not None:
            lowering.fusions.record_made(first, second)
        return original(scheduler, first, second, *args, **kwargs)

    return fuse


def _define_kernel(session: CompileRecord, original: Function) -> Function:
    def define(codegen: Any, source: str, nodes: Any, *args: Any, **kwargs: Any) -> Any:
        pointers = inductor_lowering.pointers(codegen, args, kwargs)
        name = original(codegen, source, nodes, *args, **kwargs)
        lowering = session.lowering()
        if lowering is not None:
            _announce(lowering, name, inductor_lowering.final_source(source, name), nodes, pointers)
        return name

    return define


def _announce(
    lowering: Lowering, name: str, source: str, nodes: Any, pointers: dict[str, str]
) -> None:
    """Note a kernel, and ask whether it may be there; not when the graph is lowered once more."""
    origins = lowering.names(inductor_lowering.origins(nodes))
    if not origins or lowering.is_again:
        return
    kernel = lowering.numbering.kernel_id("inductor", f"{lowering.stage}.{name}")
    writes = {
        buffer.name: buffer.node.name
        for buffer in inductor_lowering.outputs(nodes)
        if buffer.node is not None and not buffer.mutates and lowering.names([buffer.node])
    }
    if any(is_random(node) for node in lowering.graph.graph.nodes if node.name in origins):
        writes = {}  # run again, it draws other numbers
    suffix = ".cpp" if 'extern "C"' in source else ".py"
    part = KernelPart(kernel, name, source, suffix, origins, writes, pointers)
    part.vetoed = not lowering.numbering.allow_kernel(kernel)
    lowering.parts.append(part)


def _call_kernel(session: CompileRecord, original: Function) -> Function:
    """Wrap the writing of a call: which buffers the kernel that was just defined gets."""

    def call(wrapper: Any, name: str, arguments: Any, *args: Any, **kwargs: Any) -> Any:
        lowering = session.lowering()
        if lowering is not None and not lowering.is_again and lowering.parts:
            part = lowering.parts[-1]
            if part.name == name:
                lowering.launches.append(_launch(lowering, part, tuple(map(str, arguments))))
        return original(wrapper, name, arguments, *args, **kwargs)

    return call


def _launch(lowering: Lowering, part: KernelPart, arguments: tuple[str, ...]) -> Launch:
    """Return the launch of a kernel; a buffer written in place also holds its former value."""
    reads: dict[str, str] = {}
    for argument in arguments:
        pointer = part.pointers.get(argument)
        same = [name for name, other in part.pointers.items() if other == pointer] or [argument]
        for name in same:
            node = inductor_lowering.buffer_node(name)
            if name in part.writes or node is None or not lowering.names([node]):
                continue
            reads[argument] = node.name
    return Launch(part, arguments, reads)


def _load(session: CompileRecord, original: Function) -> Function:
    """Wrap the compile of generated code; nothing is compiled if a kernel was vetoed."""

    def load(interpreter: Any, code: Any) -> Any:
        lowering = session.lowering()
        if lowering is None:
            return original(interpreter, code)
        if not lowering.is_again and lowering.find_vetoed_nodes():
            raise KernelsVetoed
        for part in lowering.parts:
            again = {b for b in part.writes if inductor_lowering.is_written_again(b)}
            part.writes = {b: n for b, n in part.writes.items() if b not in again}
        module = original(interpreter, code)
        lowering.module = module if isinstance(module, ModuleType) else None
        return module

    return load
