"""Keep from the terminal what torch says of candidates: they are odd programs that nobody wrote.

Warnings that are errors (`-W error`) stay errors. Who has asked for torch's log (`TORCH_LOGS`) gets
all of it, and what is less than a warning is written only where somebody has asked for it. What it
does not do: hide what a program prints, or what children say (they are read).
"""

import logging
import os
import warnings
from collections.abc import Generator
from contextlib import contextmanager


@contextmanager
def quiet() -> Generator[None]:
    """Show no warning meanwhile, not of torch's log either. For one thread."""
    handlers = set[logging.Handler]() if os.environ.get("TORCH_LOGS") else _handlers_of_torch()
    with warnings.catch_warnings():
        warnings.showwarning = _say_nothing
        for handler in handlers:
            handler.addFilter(_is_shown)  # a handler may be others', too
        try:
            yield
        finally:
            for handler in handlers:
                handler.removeFilter(_is_shown)


def _say_nothing(*_: object, **__: object) -> None:
    pass


def _handlers_of_torch() -> set[logging.Handler]:
    """Return those of all its loggers: the ones of dynamo, inductor and others stand alone."""
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
