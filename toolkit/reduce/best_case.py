"""The smallest case so far, on disk: a killed process loses seconds of a reduction.

What it does not do: it does not know how small is small; it keeps what it is told.
"""

import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path

from ctk.compiler.choices import InputsMode
from ctk.compiler.errors import CtkError
from ctk.toolkit.case.case import Case
from ctk.toolkit.case.store import save_case


class BestCase:
    """Keeps the smallest case so far on disk, so that a killed process loses seconds of work.

    A case is written at once, unless the last one was written less than a second ago, or writing
    takes more than a tenth of the time; then with the next question.

    Args:
        folder: Where to.
        keep: What the case keeps of its inputs.
        on_saved: Called after each time.
    """

    def __init__(
        self, folder: Path, keep: InputsMode, on_saved: Callable[[Case], None] | None = None
    ) -> None:
        self.folder, self.keep, self.saved = folder, keep, False
        self._on_saved = on_saved
        self._waiting: Case | None = None
        self._not_before = time.monotonic()

    def improved(self, case: Case) -> None:
        """Take note of a smaller case."""
        self._waiting = case
        self.tick()

    def tick(self) -> None:
        """Write the smallest case, if it is not written yet and it is time to."""
        if self._waiting is not None and time.monotonic() >= self._not_before:
            self.flush()

    def flush(self) -> None:
        """Write the smallest case now, if it is not written yet."""
        case, self._waiting = self._waiting, None
        if case is None:
            return
        started = time.monotonic()
        save_case(case, self.folder, inputs=self.keep, overwrite=True)
        self.saved = True
        if self._on_saved:
            self._on_saved(case)
        ended = time.monotonic()
        self._not_before = ended + max(1.0, 10 * (ended - started))

    @contextmanager
    def kept(self, go_on: str) -> Generator[None]:
        """Whatever is raised inside: write the smallest case, and say on the exception where.

        Args:
            go_on: The command that takes it up again.
        """
        try:
            yield
        except BaseException as error:
            try:
                self.flush()
            except (CtkError, OSError) as problem:
                error.add_note(f"The smallest case so far could not be saved: {problem}")
            if self.saved:
                error.add_note(f"The smallest case so far is kept: {self.folder}\n  {go_on}")
            raise
