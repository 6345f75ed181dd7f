"""Diagnosis: the facts about one failure so far, as live objects; `as_json` writes it."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from ctk.toolkit.bisect.culprit import Search
from ctk.toolkit.case.case import Case
from ctk.toolkit.case.failure import Signature
from ctk.toolkit.case.formats.checked_types import Line
from ctk.toolkit.case.formats.schema import document
from ctk.toolkit.case.judgement import Judgement, Verdict
from ctk.toolkit.end_to_end.answer import EndToEnd
from ctk.toolkit.oracle.questions.same_failure import is_other
from ctk.toolkit.reduce.driver import Reduction
from ctk.toolkit.repro.run import ReproRun

State = Literal["failing", "bisected", "reducing", "finished"]
"""The progress of a diagnosis: failure seen, cause known, reduction running, done."""

_SHOWN_DIGITS = 12


@document
@dataclass(frozen=True, slots=True)
class ProgramSize:
    """How small a program became that fails while no graph of it does.

    Attributes:
        statements_before: Of the program as it was given.
        statements_after: Of the smallest one.
        questions: How many were asked.
        finished: Whether nothing smaller is left to try.
        left: The parts for which the time was too short: `statements`, `expressions`.
    """

    statements_before: int
    statements_after: int
    questions: int
    finished: bool
    left: tuple[str, ...] = ()


@document
@dataclass(frozen=True, slots=True)
class KeptEntry:
    """The entries of a compile in the user's cache: several where sizes are symbols.

    Attributes:
        case: Name of the case whose compile this is.
        entries: Their digests.
        loaded: The verdict of the case when loaded from there; null where a fresh compile already
            fails.
        removed: Why they were removed; empty while they stay.
    """

    case: Line
    entries: tuple[Line, ...]
    loaded: Verdict | None = None
    removed: Line = ""

    @property
    def alone_fails(self) -> bool:
        """Whether the entry fails, and the same compile of now does not."""
        return self.loaded is Verdict.REPRODUCES

    @property
    def line(self) -> str:
        """The entries and their fate in one sentence."""
        many = len(self.entries) > 1
        names = ", ".join(entry[:_SHOWN_DIGITS] for entry in self.entries)
        what = f"{'entries' if many else 'entry'} {names} of the persistent cache"
        if self.alone_fails:
            state = "removed" if self.removed else "still there"
            return f"{self.case} fails as {what} has it, and passes recompiled; {state}"
        begin = f"{self.case} had {what}, and was recompiled"
        if self.removed:
            return f"{begin}; {'they were' if many else 'it was'} removed: {self.removed}"
        if self.loaded is None:
            stay = "they stay" if many else "it stays"
            return f"{begin}; {stay}, for no culprit is confirmed (ctk cache clear DIGEST)"
        return f"{begin}; loaded from there it shows no failure either"


@dataclass(frozen=True, slots=True)
class OtherFailure:
    """Another failure, which the reduction met on its way.

    Attributes:
        folder: The smallest candidate that showed it, as a case.
    """

    signature: Signature
    folder: Path


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """The result of `diagnose` and `bisect-pass`, also while they run.

    Attributes:
        case: The case in question, as it was given; None for a program that gives no graph.
        search: The bisection.
        seconds: Time used so far.
        folder: Where it is written; None if nowhere.
        state: How far it is.
        best: The smallest case so far, while it is being reduced.
        reduction: How the case was made smaller; None if that was not asked for, or is not done.
        minimal_search: The bisection of the smallest case, to see that it is the same failure
            still.
        repro: Path of the emitted script; None if none was written.
        repro_run: Its run in a clean process; None if it was not run.
        minimal: Folder of the smallest case; None before there is one.
        problems: Errors that did not end the operation, one sentence each.
        is_saved: Whether everything that was found is on disk.
        is_interrupted: Whether Ctrl-C has ended it.
        go_on: The command that resumes it.
        end_to_end: The comparison of the whole program's calls; None for cases and graphs, and if a
            graph shows the failure.
        program: Sizes of the reduced program; None if a graph shows the failure, or without a
            reduction.
        kept: The entries of the compile in the persistent cache; None for none.
        decided_by: Which command or function of the user decides; empty where ctk compares.
        others: Other failures that were met on the way.
        left_options: Whether the time was too short for the options that matter.
    """

    case: Case | None
    search: Search
    seconds: float
    folder: Path | None = None
    state: State = "finished"
    best: Case | None = None
    reduction: Reduction | None = None
    minimal_search: Search | None = None
    repro: Path | None = None
    repro_run: ReproRun | None = None
    minimal: Path | None = None
    problems: tuple[str, ...] = ()
    is_saved: bool = True
    is_interrupted: bool = False
    go_on: str = ""
    end_to_end: EndToEnd | None = None
    program: ProgramSize | None = None
    kept: KeptEntry | None = None
    decided_by: str = ""
    others: tuple[OtherFailure, ...] = ()
    left_options: bool = False

    def _repr_html_(self) -> str | None:
        """Return the page of the folder, framed, for a notebook; None without a readable folder."""
        from ctk.toolkit.operations.pages.folder_page import frame_of_folder

        return frame_of_folder(self.folder) if self.folder is not None else None

    @property
    def left(self) -> tuple[str, ...]:
        """The parts for which the time was too short: `sizes`, `values`, `options`."""
        parts = self.reduction.left if self.reduction is not None else ()
        parts += self.program.left if self.program is not None else ()
        return (*parts, *["options"] * self.left_options)

    @property
    def judgement(self) -> Judgement:
        """The judgement of the graph; of the whole program, where no graph shows a failure."""
        whole = self.end_to_end
        is_shown = self.search.judgement.fails
        return self.search.judgement if whole is None or is_shown else whole.judgement

    @property
    def is_shown_by_no_graph(self) -> bool:
        """Whether the program as a whole fails while none of its graphs does."""
        return self.end_to_end is not None and self.end_to_end.judgement.fails

    @property
    def name(self) -> str:
        """Name of the case, or of the program where it gives none."""
        return self.case.name if self.case else self.end_to_end.program if self.end_to_end else ""

    @property
    def target(self) -> str:
        return self.case.target if self.case else self.end_to_end.target if self.end_to_end else ""

    @property
    def smallest(self) -> Case | None:
        """The smallest case that is known to fail; None before a reduction."""
        return self.reduction.best if self.reduction is not None else self.best

    @property
    def other_failure(self) -> Signature | None:
        """The failure of the smallest case, where it differs from the given case's."""
        smallest = self.smallest
        if self.case is None or smallest is None or not is_other(self.case, smallest):
            return None
        return smallest.signature
