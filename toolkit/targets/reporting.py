"""What every adapter of a foreign compiler needs: report an exception, run a vetoed graph."""

from collections.abc import Callable
from typing import Any

import torch
from torch.fx import GraphModule, Interpreter

from ctk.compiler.error_place import place
from ctk.compiler.observe import ErrorRecord, KernelId, Observer, PassId, RewriteId, Stage
from ctk.compiler.torch_compat import inductor
from ctk.toolkit.case.raise_site import root_error


def interpreted(graph: GraphModule) -> Callable[[list[Any]], Any]:
    """Return a boxed callable that runs a graph operator by operator, as a vetoed kernel does."""

    def run(args: list[Any]) -> Any:
        with torch.no_grad():
            return Interpreter(graph).boxed_run(args)

    return inductor.boxed(run)


def report(
    observer: Observer,
    error: BaseException,
    *,
    stage: Stage,
    pass_id: PassId | None = None,
    rewrite: RewriteId | None = None,
    kernel: KernelId | None = None,
    node: str | None = None,
    graph: GraphModule | None = None,
    where: str | None = None,
) -> None:
    """Write the place on an exception and tell the observer; see `error_place.place`.

    Compilers wrap what is raised inside them (`InductorError`): the innermost exception is meant.
    """
    inner = root_error(error)
    place(ErrorRecord(inner, stage, pass_id, rewrite, kernel, node, graph), observer, where=where)
