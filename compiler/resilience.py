"""The effect of a failing compile on the running program: `Config.on_failure`.

`raise` (the default) propagates the exception. `fallback` and `warn` skip the stage or the compile,
and report that in a log line or a warning. Dynamo's control flow and the exceptions of an observer
are not failures and always propagate. A code generator that refuses a graph is handled before that
(`codegen/select.py`).
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
from ctk.compiler.installed_torch import missing_names_refused
from ctk.compiler.observe import ErrorRecord, Observer, first_line, is_observers
from ctk.compiler.options.config import Config
from ctk.compiler.torch_compat.dynamo import dynamo_api as dynamo

log = logging.getLogger("ctk.pipeline")
T = TypeVar("T")

DISPATCH = "captured/autograd_dispatch"
"""The place of an error that no pass and no code generator owns: dispatch or partitioning."""


def is_control_flow(error: BaseException) -> bool:
    """Return whether Dynamo raises this to trace again; it must reach Dynamo."""
    return isinstance(error, dynamo.control_flow())


def attempt(
    config: Config, name: str, action: Callable[[], T], fallback: Callable[[], object]
) -> T:
    """Return the result of `action`, or of `fallback` if it raises and the config allows.

    Raises:
        MissingTorchName: The installed torch lacks a private name; a fallback reports that instead.
    """
    try:
        with missing_names_refused():
            return action()
    except Exception as error:
        if config.on_failure == "raise" or is_control_flow(error) or is_observers(error):
            raise
        message = (
            f"ctk: {name} failed and falls back to eager: {type(error).__name__}: "
            f"{first_line(error)} (at {where_of(error) or 'unknown place'})"
        )
        if config.on_failure == "warn":
            warnings.warn(message, RuntimeWarning, stacklevel=2)
        else:
            log.warning("%s", message)
        return cast("T", fallback())


def attempt_on_graph(
    config: Config, name: str, graph: GraphModule, action: Callable[[], object]
) -> bool:
    """Change a graph and its sub-graphs in place; if that fails, restore them and return False."""
    if config.on_failure == "raise":
        with missing_names_refused():
            action()
        return True
    backup = copy_graph_module(graph, lazy=True)

    def act() -> bool:
        action()
        return True

    def fall_back() -> bool:
        adopt(graph, backup, renew=True)
        return False

    return attempt(config, name, act, fall_back)


@contextlib.contextmanager
def place_errors(where: str, graph: GraphModule, observer: Observer | None) -> Generator[None]:
    """Record a place on an exception of the region that has none, and report it to the observer."""
    try:
        yield
    except Exception as error:
        if not is_control_flow(error):
            place(ErrorRecord(error, "captured", graph=graph), observer, where=where)
        raise
