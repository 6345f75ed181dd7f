"""Silence the warnings of torch about candidates, which are odd programs that no user wrote.

Warnings that are errors (`-W error`) stay errors, and `TORCH_LOGS` keeps the whole log of torch.
Records below a warning are untouched, as only a user setting shows them.
"""

import logging
import os
import warnings
from collections.abc import Generator
from contextlib import contextmanager


@contextmanager
def quiet() -> Generator[None]:
    """Show no warning in this block, including those of torch's log. For one thread."""
    handlers = set[logging.Handler]() if os.environ.get("TORCH_LOGS") else _handlers_of_torch()
    with warnings.catch_warnings():
        warnings.showwarning = _say_nothing
        for handler in handlers:
            handler.addFilter(_is_shown)  # other loggers may share the handler
        try:
            yield
        finally:
            for handler in handlers:
                handler.removeFilter(_is_shown)


def _say_nothing(*_: object, **__: object) -> None:
    pass


def _handlers_of_torch() -> set[logging.Handler]:
    """Return the handlers of all torch loggers: dynamo, inductor and others have their own."""
    loggers = [
        each
        for name, each in logging.root.manager.loggerDict.items()
        if isinstance(each, logging.Logger) and _is_of_torch(name)
    ]
    return {handler for logger in loggers for handler in logger.handlers}


def _is_of_torch(name: str) -> bool:
    return name.partition(".")[0] == "torch"


def _is_shown(record: logging.LogRecord) -> bool:
    return record.levelno < logging.WARNING or not _is_of_torch(record.name)
