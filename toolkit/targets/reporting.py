"""Shared by adapters of foreign compilers: report and raise exceptions, run a vetoed graph."""

import dataclasses
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

import torch
from torch.fx import GraphModule, Interpreter

from ctk.compiler.error_place import place
from ctk.compiler.observe import ErrorRecord, Observer
from ctk.compiler.torch_compat.dynamo import dynamo_api as dynamo
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


@contextmanager
def raise_innermost() -> Generator[None]:
    """Raise the innermost exception in place of the wrappers of a compiler; its cause stays.

    `InductorError` and `BackendCompilerFailed` hide the type, which identifies the user's failure.
    Dynamo runs a graph in eager if the backend raises that data decide a value
    (`DataDependentOutputException`); in a wrapper the same exception is the user's error.
    """
    try:
        yield
    except Exception as error:
        inner = root_error(error)
        if inner is not error and isinstance(inner, dynamo.fallbacks()):
            raise
        raise inner from inner.__cause__
