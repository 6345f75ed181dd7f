"""What a failing compile does to the running program: `Config.on_failure`.

`raise` (the default) hands the exception on. `fallback` and `warn` go on without the stage, or
without the compile, and say so: in a log line or in a warning. Dynamo's own control flow and what
an observer raises are no failures and always go through. A code generator that refuses a graph is
no failure either (`codegen/select.py`).
"""

import contextlib
import logging
import warnings
from collections.abc import Callable, Generator
from typing import TypeVar, cast

from torch.fx import GraphModule

from ctk.compiler.error_place import place, where_of
from ctk.compiler.fx.adopt import adopt
from ctk.compiler.fx.copy import copy_graph_module
from ctk.compiler.observe import ErrorRecord, Observer, first_line, is_observers
from ctk.compiler.options.config import Config
from ctk.compiler.torch_compat.dynamo import dynamo_api as dynamo

log = logging.getLogger("ctk.pipeline")
T = TypeVar("T")

DISPATCH = "captured/autograd_dispatch"
"""The place of an error that no pass and no code generator owns: dispatch or partitioning."""


def is_control_flow(error: BaseException) -> bool:
    """Return whether Dynamo raises this to trace again: it is no failure, and must reach Dynamo."""
    return isinstance(error, dynamo.control_flow())


def attempt(
    config: Config, what: str, action: Callable[[], T], fallback: Callable[[], object]
) -> T:
    """Return what `action` returns; when it fails, do as `Config.on_failure` says.

    Args:
        config: Options of the compile.
        what: What is attempted, for the message: `stage joint`.
        action: May raise.
        fallback: Called when failures fall back; its result is returned then.
    """
    if config.on_failure == "raise":
        return action()
    try:
        return action()
    except Exception as error:
        if is_control_flow(error) or is_observers(error):
            raise
        message = (
            f"ctk: {what} failed and falls back to eager: {type(error).__name__}: "
            f"{first_line(error)} (at {where_of(error) or 'unknown place'})"
        )
        if config.on_failure == "warn":
            warnings.warn(message, RuntimeWarning, stacklevel=2)
        else:
            log.warning("%s", message)
        return cast("T", fallback())


def attempt_on_graph(
    config: Config, what: str, graph: GraphModule, action: Callable[[], object]
) -> bool:
    """Change a graph in place by `action`; where failures fall back, one leaves it as it was.

    Its sub-graphs too: a pass changes those as well.

    Returns:
        Whether it was changed: nothing failed.
    """
    if config.on_failure == "raise":
        action()
        return True
    backup = copy_graph_module(graph, lazy=True)

    def act() -> bool:
        action()
        return True

    def fall_back() -> bool:
        adopt(graph, backup, renew=True)
        return False

    return attempt(config, what, act, fall_back)


@contextlib.contextmanager
def placed(where: str, graph: GraphModule, observer: Observer | None) -> Generator[None]:
    """Write a place on what is raised inside and has none yet, and tell the observer."""
    try:
        yield
    except Exception as error:
        if not is_control_flow(error):
            place(ErrorRecord(error, "captured", graph=graph), observer, where=where)
        raise
