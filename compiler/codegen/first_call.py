"""Record the values of a compiled graph's first call for an observer."""

import threading
from collections.abc import Sequence
from typing import Any

from torch.fx import GraphModule

from ctk.compiler.codegen.base import BoxedCallable, as_boxed
from ctk.compiler.fx.clone import clone_values
from ctk.compiler.observe import CallRecord, KernelCall, KernelId, Observer, Stage


def record_first_call(
    compiled: BoxedCallable,
    kernel: KernelId,
    stage: Stage,
    graph: GraphModule,
    observer: Observer,
) -> BoxedCallable:
    """Wrap a boxed callable so that its first finished call raises a `CallRecord`.

    Inputs are cloned before the call and again after it, results after it. The inputs live until
    the call has returned, in this call only. A first call that raises is not recorded; the next one
    is.
    """
    pending = [True]
    lock = threading.Lock()

    def is_first() -> bool:
        with lock:
            return bool(pending) and pending.pop()

    def run(args: list[Any]) -> Sequence[object]:
        if not is_first():
            return compiled(args)
        inputs = tuple(args)
        before = clone_values(inputs)
        try:
            outputs = compiled(args)
        except BaseException:
            pending.append(True)
            raise
        items = outputs if isinstance(outputs, (list, tuple)) else (outputs,)
        results, after = clone_values(items), clone_values(inputs)
        kernels = (KernelCall(kernel),)
        observer.on_call(CallRecord(stage, graph, before, results, after, kernels))
        return outputs

    return as_boxed(run, compiled.ctk_source)
