"""Keep from the terminal what torch says of candidates: they are odd programs that nobody wrote.

Warnings that are errors (`-W error`) stay errors. Who has asked for torch's log (`TORCH_LOGS`) gets
all of it. What it does not do: hide what a program prints, or what children say (they are read).
"""

import logging
import os
import warnings
from collections.abc import Generator
from contextlib import contextmanager


@contextmanager
def quiet() -> Generator[None]:
    """Show no warning and no line of torch's log meanwhile. For one thread."""
    handlers = [] if os.environ.get("TORCH_LOGS") else [*logging.getLogger("torch").handlers]
    with warnings.catch_warnings():
        warnings.showwarning = _say_nothing
        for handler in handlers:
            handler.addFilter(_is_not_torchs)  # a handler may be others', too
        try:
            yield
        finally:
            for handler in handlers:
                handler.removeFilter(_is_not_torchs)


def _say_nothing(*_: object, **__: object) -> None:
    pass


def _is_not_torchs(record: logging.LogRecord) -> bool:
    return record.name.partition(".")[0] != "torch"
