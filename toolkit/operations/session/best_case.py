"""The smallest case so far, on disk before the search goes on; at the end with its certificate.

FOLDER/certificate.json    the outcome of each edit that would make it smaller
FOLDER/../neighbour/       the closest case that passes
"""

from dataclasses import dataclass, replace
from pathlib import Path

from ctk.toolkit.case.case import Case
from ctk.toolkit.case.case_listing import describe
from ctk.toolkit.case.formats.schema import document
from ctk.toolkit.case.store import save_case
from ctk.toolkit.operations.report.certificate_file import CERTIFICATE, NEIGHBOUR, write_certificate
from ctk.toolkit.operations.session.running_operation import Operation
from ctk.toolkit.oracle.answers.fingerprint import fingerprint
from ctk.toolkit.reduce.driver import Reduction
from ctk.toolkit.reduce.size import call_nodes


@document
@dataclass(frozen=True, slots=True)
class Best:
    """A smaller case that is on disk."""

    fingerprint: str
    nodes: int


class BestCase:
    """Keeps the smallest case so far in a folder, and notes it in the journal.

    A resumed search visits the same cases again. Cases in the journal are skipped, so that the
    folder never returns to a larger one.
    """

    def __init__(self, run: Operation, folder: Path) -> None:
        self.folder = folder
        self._run = run
        self._attempt = 0

    def start_again(self) -> None:
        """Begin another reduction of the same case; its journal keys are new."""
        self._attempt += 1

    def save_smaller(self, case: Case) -> bool:
        """Write a smaller case now; return whether it is on disk."""
        run, known = self._run, fingerprint(case, self._run.digests)
        key = f"{self._attempt} {known}"
        if run.journal.recall(Best, key) and not self._is_lost(key):
            return True

        def save() -> None:
            (self.folder / CERTIFICATE).unlink(missing_ok=True)  # it belongs to the old case
            save_case(case, self.folder, inputs=run.keep, overwrite=True)
            run.journal.note(key, Best(known, call_nodes(case)))

        is_saved = run.save("the smallest case", save)
        if is_saved:
            run.write(state="reducing", best=case, minimal=self.folder)
        return is_saved

    def certify(self, reduction: Reduction) -> None:
        """Write the outcome of each edit of the smallest case, and the closest case that passes."""
        if not self.save_smaller(reduction.best):
            return
        self._run.save(CERTIFICATE, lambda: write_certificate(reduction, self.folder))
        passing = reduction.neighbour
        if passing is None:
            return
        passing = replace(passing, signature=None, name=f"{passing.name}_{NEIGHBOUR}")
        folder = self.folder.parent / NEIGHBOUR
        keep = self._run.keep
        self._run.save(NEIGHBOUR, lambda: save_case(passing, folder, inputs=keep, overwrite=True))

    def _is_lost(self, key: str) -> bool:
        """Return whether the last written case is damaged."""
        is_last = key == self._run.journal.last(Best)
        return is_last and (not self.folder.is_dir() or describe(self.folder).problem is not None)
