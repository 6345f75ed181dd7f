"""Watch the calls of compiled graphs and kernels: values of the first call, place of exceptions."""

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from torch.fx import GraphModule

from ctk.compiler.error_place import place
from ctk.compiler.fx.clone import clone_inputs, clone_values
from ctk.compiler.observe import CallRecord, ErrorRecord, KernelCall, KernelId, Observer, Stage
from ctk.compiler.torch_compat.fx.graphs import Boxed


@dataclass(slots=True)
class Returned:
    """The return values of the kernels of one graph while a call is recorded, on any thread.

    Attributes:
        calls: The kernel calls so far; None while no call is recorded.
        is_mixed: Another call ran meanwhile, so the values are ambiguous.
    """

    calls: list[KernelCall] | None = None
    is_mixed: bool = False


@dataclass(frozen=True, slots=True)
class WatchedGraph:
    """A compiled graph, and the observer of its calls.

    Attributes:
        donated: Positions of inputs whose memory the compiled code may reuse, so that their
            contents after a call mean nothing; the record shows them unchanged.
    """

    observer: Observer = field(repr=False)
    stage: Stage
    graph: GraphModule = field(repr=False)
    kernels: tuple[KernelId, ...] = ()
    donated: frozenset[int] = frozenset()
    returned: Returned = field(default_factory=Returned, repr=False)


def watch_calls(call: Boxed, compiled: WatchedGraph) -> Boxed:
    """Return `call`, reporting each exception and, if wanted, the values of its first call.

    A first call that raises is not recorded; the next one is. Inputs are cloned before the call and
    again after it; they live until it has returned, in this call only.
    """
    pending = [True] if compiled.observer.keep_calls else []
    lock = threading.Lock()
    only = compiled.kernels[0] if len(compiled.kernels) == 1 else None
    told = only if compiled.observer.keep_launches else None

    def is_first() -> bool:
        with lock:
            return bool(pending) and pending.pop()

    def run(args: list[Any]) -> Any:
        if told is not None:
            compiled.observer.on_launch(told)
        if not is_first():
            compiled.returned.is_mixed = True
            return _placed(call, compiled, args)
        held, before = tuple(args), clone_inputs(args)
        compiled.returned.calls = returned = []
        try:
            outputs = _placed(call, compiled, args)
        except BaseException:
            pending.append(True)
            raise
        finally:
            compiled.returned.calls = None
        kernels = [] if compiled.returned.is_mixed else returned
        _record(compiled, before, held, outputs, kernels)
        return outputs

    return run


def _placed(call: Boxed, compiled: WatchedGraph, args: list[Any]) -> Any:
    try:
        return call(args)
    except Exception as error:
        only = compiled.kernels[0] if len(compiled.kernels) == 1 else None
        stage: Stage = "lowered" if compiled.kernels else compiled.stage
        where = None
        if len(compiled.kernels) > 1:  # raised between its kernels: each names itself
            where = f"lowered/{compiled.kernels[0].codegen}:{compiled.stage}"
        record = ErrorRecord(error, stage, kernel=only, graph=compiled.graph)
        place(record, compiled.observer, where=where)
        raise


def _record(
    compiled: WatchedGraph,
    before: tuple[object, ...],
    held: tuple[object, ...],
    outputs: object,
    returned: Sequence[KernelCall],
) -> None:
    results = outputs if isinstance(outputs, (list, tuple)) else (outputs,)
    after = [before[i] if i in compiled.donated else value for i, value in enumerate(held)]
    told = {kernel.id for kernel in returned}
    kernels = [*returned, *(KernelCall(each) for each in compiled.kernels if each not in told)]
    record = CallRecord(
        compiled.stage,
        compiled.graph,
        before,
        clone_values(results),
        clone_values(after),
        tuple(kernels),
    )
    compiled.observer.on_call(record)


def watch_kernel(
    run: Callable[..., Any],
    kernel: KernelId,
    names: tuple[str, ...],
    observer: Observer,
    returned: Returned,
) -> Callable[..., Any]:
    """Wrap a kernel: record its values while a call is recorded, and place its exceptions."""

    keep_launches = observer.keep_launches

    def watched(*args: object) -> Any:
        if keep_launches:
            observer.on_launch(kernel)
        try:
            values = run(*args)
        except Exception as error:
            node = names[0] if len(names) == 1 else None
            place(ErrorRecord(error, "lowered", kernel=kernel, node=node), observer)
            raise
        calls = returned.calls
        if calls is not None:
            cloned = clone_values(values if isinstance(values, (list, tuple)) else (values,))
            calls.append(KernelCall(kernel, dict(zip(names, cloned, strict=True))))
        return values

    return watched
