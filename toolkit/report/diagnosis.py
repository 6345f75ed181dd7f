"""Diagnosis: what is known of one failure so far, as live objects; `as_json` writes it."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from ctk.toolkit.bisect.culprit import Search
from ctk.toolkit.case.case import Case
from ctk.toolkit.oracle.judgement import Judgement
from ctk.toolkit.reduce.driver import Reduction
from ctk.toolkit.repro.run import ReproRun

State = Literal["failing", "bisected", "reducing", "finished"]
"""How far a diagnosis is: the failure was seen, what causes it is known, a smaller case is looked
for, done."""


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """What `diagnose` and `bisect-pass` found.

    Attributes:
        case: The case in question, as it was given.
        search: Who causes the failure, and how that is known.
        seconds: Time used so far.
        folder: Where it is written; None if nowhere.
        state: How far it is.
        best: The smallest case so far, while it is being reduced.
        reduction: How the case was made smaller; None if that was not asked for, or is not done.
        minimal_search: The bisection of the smallest case, to see that it is the same failure
            still.
        repro: Path of the emitted script; None if none was written.
        repro_run: What its run in a clean process showed; None if it was not run.
        minimal: Folder of the smallest case; None before there is one.
        problems: What went wrong on the way and did not end it, one sentence each.
        is_saved: Whether everything that was found is on disk.
        is_interrupted: Whether Ctrl-C has ended it.
        go_on: The command that goes on with it.
    """

    case: Case
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

    @property
    def judgement(self) -> Judgement:
        return self.search.judgement

    @property
    def smallest(self) -> Case | None:
        """The smallest case that is known to fail; None before a reduction."""
        return self.reduction.best if self.reduction is not None else self.best
