"""Shared by adapters of foreign compilers: report an exception, run a vetoed graph."""

import dataclasses
from typing import Any

import torch
from torch.fx import GraphModule, Interpreter

from ctk.compiler.error_place import place
from ctk.compiler.observe import ErrorRecord, Observer
from ctk.compiler.torch_compat.fx.graphs import Boxed, boxed
from ctk.toolkit.case.raise_site import root_error


def interpret_graph(graph: GraphModule) -> Boxed:
    """Return a boxed callable that runs a graph operator by operator, as a vetoed kernel does."""

    def run(args: list[Any]) -> Any:
        with torch.no_grad():
            return Interpreter(graph).boxed_run(args)

    return boxed(run)


def report(observer: Observer, record: ErrorRecord, *, where: str | None = None) -> None:
    """Write the place on an exception and report it to the observer; see `error_place.place`.

    Compilers wrap exceptions raised inside them (`InductorError`); the innermost one is reported.
    """
    inner = dataclasses.replace(record, error=root_error(record.error))
    place(inner, observer, where=where)
