"""Tables of rules that are filled when they are first needed, once per process.

Tracing patterns takes seconds in sum, and a device asked about at import would be initialised
there. Filling is guarded by a lock; where it fails, the table stays empty and the next call tries
again.
"""

import threading
from collections.abc import Callable

import torch

from ctk.compiler.patterns.matcher import RuleTable

Fill = Callable[[RuleTable, tuple[str, ...]], object]


class LazyTable:
    """A `RuleTable` that `fill(table, devices)` fills at the first `get`.

    `devices` are the types of device that exist here: `("cpu",)`, `("cpu", "cuda")`.
    """

    def __init__(self, fill: Fill) -> None:
        self._fill = fill
        self._lock = threading.RLock()
        self._table: RuleTable | None = None

    def get(self) -> RuleTable:
        """Return the table, filled.

        Raises:
            Exception: The error of `fill`; the table stays empty.
        """
        if self._table is None:
            with self._lock:
                if self._table is None:
                    table = RuleTable()
                    self._fill(table, devices())
                    self._table = table
        return self._table


def devices() -> tuple[str, ...]:
    """Return the types of device that exist here; does not initialise them."""
    return ("cpu", "cuda") if torch.cuda.is_available() else ("cpu",)
