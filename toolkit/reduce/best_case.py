"""The smallest case so far, on disk before the search goes on.

What it does not do: it does not know how small is small; it keeps what it is told.
"""

import logging
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from ctk.compiler.choices import InputsMode
from ctk.compiler.errors import CtkError
from ctk.toolkit.case.case import Case
from ctk.toolkit.case.listing import describe
from ctk.toolkit.case.store import save_case
from ctk.toolkit.formats.schema import document
from ctk.toolkit.oracle.cache import Digests, fingerprint
from ctk.toolkit.oracle.interrupts import interrupts_put_off
from ctk.toolkit.oracle.journal import Journal
from ctk.toolkit.reduce.size import call_nodes

logger = logging.getLogger("ctk")


@document
@dataclass(frozen=True, slots=True)
class Best:
    """A smaller case that is on disk."""

    fingerprint: str
    nodes: int


class BestCase:
    """Keeps the smallest case so far in a folder, and notes in the journal that it is there.

    A search that is run again with remembered answers passes the same cases again: those that the
    journal has are passed over, so that the folder never goes back to a larger one.

    Args:
        folder: Where to.
        keep: What the case keeps of its inputs.
        journal: Of the operation.
        digests: Of the tensors of cases.
        on_saved: Called after each time.
    """

    def __init__(
        self,
        folder: Path,
        keep: InputsMode,
        journal: Journal,
        digests: Digests,
        on_saved: Callable[[Case], None],
    ) -> None:
        self.folder, self.keep = folder, keep
        self.problem = ""
        self._journal, self._digests, self._on_saved = journal, digests, on_saved
        self._attempt = 0

    def start_again(self) -> None:
        """Begin another reduction of the same case: its cases follow those of the one before."""
        self._attempt += 1

    def improved(self, case: Case) -> None:
        """Write a smaller case now; what cannot be written is told once, in `problem`."""
        known = fingerprint(case, self._digests)
        key = f"{self._attempt} {known}"
        if self._journal.recall(Best, key) and not self._is_lost(key):
            return
        try:
            with interrupts_put_off():
                save_case(case, self.folder, inputs=self.keep, overwrite=True)
                self._journal.note(key, Best(known, call_nodes(case)))
                self.problem = ""
                self._on_saved(case)
        except (CtkError, OSError) as error:
            if not self.problem:
                logger.warning("ctk: the smallest case so far is not on disk: %s", error)
            self.problem = f"the smallest case is not on disk: {error}"

    def _is_lost(self, key: str) -> bool:
        """Return whether the last case that was written is not whole."""
        is_last = key == self._journal.last(Best)
        return is_last and (not self.folder.is_dir() or describe(self.folder).problem is not None)
