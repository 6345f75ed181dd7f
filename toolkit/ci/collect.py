"""Collect the outcomes below a folder: outcome.json files, diagnoses, and failing cases.

A diagnosis or a failing case becomes an outcome named by its folder, unless it lies in the folder
of a run that wrote outcome.json files: that run has judged it. A passing case was perhaps never
judged, so it does not count. Nothing is loaded or run.
"""

from dataclasses import dataclass, replace
from pathlib import Path
from shlex import quote

from ctk.compiler.errors import CaseError
from ctk.compiler.observe import first_line
from ctk.toolkit.case.formats.folder_walk import Walk, require_folder
from ctk.toolkit.case.formats.plain_text import one_line
from ctk.toolkit.case.graphs.places import PLACES, read_places
from ctk.toolkit.case.judgement import Verdict
from ctk.toolkit.case.manifest import MANIFEST, read_manifest
from ctk.toolkit.ci.outcome import FILE, Outcome, read_outcome
from ctk.toolkit.operations.report.as_json import FILE as DIAGNOSIS
from ctk.toolkit.operations.report.as_json import Record, read_json
from ctk.toolkit.operations.report.as_text import headline


@dataclass(frozen=True, slots=True)
class Collection:
    """The outcomes of a run.

    Attributes:
        outcomes: In the order of their folders; `folder` is relative to the working folder.
        problems: One sentence for each document that cannot be read, and for a cut walk.
    """

    outcomes: tuple[Outcome, ...]
    problems: tuple[str, ...] = ()


def collect_outcomes(root: Path) -> Collection:
    """Return the outcomes at or below a folder.

    Raises:
        CaseError: There is no such folder.
    """
    require_folder(root, "name the folder that the tests wrote to")
    walk, problems = Walk(root), list[str]()
    outcomes: dict[Path, Outcome] = {}
    others: dict[Path, Outcome] = {}
    for folder, subfolders, files in walk:
        if files_read := {FILE, DIAGNOSIS, MANIFEST}.intersection(files):
            try:
                if FILE in files_read:
                    outcomes[folder] = read_outcome(folder)
                    continue
                subfolders.clear()
                outcome = _outcome_of(folder, root, files_read)
                others |= {folder: outcome} if outcome is not None else {}
            except CaseError as error:
                problems.append(one_line(first_line(error)))
    runs = {folder if folder == root else folder.parent for folder in outcomes}
    for folder, outcome in others.items():
        if runs.isdisjoint((folder, *folder.parents)):
            outcomes[folder] = outcome
    if walk.is_cut:
        problems.append(f"{root} has more than {walk.limit:,} folders: the others were not read")
    found = (_placed(outcomes[folder], folder) for folder in sorted(outcomes))
    return Collection(tuple(found), tuple(problems))


def _placed(outcome: Outcome, folder: Path) -> Outcome:
    if outcome.folder is None:
        return outcome
    return replace(outcome, folder=str(folder / outcome.folder))


def _outcome_of(folder: Path, root: Path, files: set[str]) -> Outcome | None:
    """Return the outcome of a diagnosis or of a failing case; None of another case."""
    name = folder.relative_to(root).as_posix() if folder != root else folder.resolve().name
    if DIAGNOSIS in files:
        return outcome_of_record(read_json(folder), name, folder)
    case = read_manifest(folder)
    if case.signature is None:
        return None
    return Outcome(
        test=name,
        target=case.target,
        verdict=Verdict.REPRODUCES,
        headline=f"{case.name} with target {case.target} fails: {case.signature}",
        signature=case.signature,
        place=read_places(folder).last if PLACES in case.files else "",
        command=f"ctk diagnose {quote(str(folder))}",
        folder=".",
        graphs=1,
    )


def outcome_of_record(record: Record, test: str, folder: Path) -> Outcome:
    """Return the outcome of a diagnosis in a folder, which is also the folder of `outcome.json`."""
    whole, culprit = record.end_to_end, record.culprit
    where = whole.where if whole is not None and whole.judgement.fails else None
    where = culprit.where if where is None and culprit is not None else where
    line = whole.line if whole is not None and whole.line else culprit.line if culprit else ""
    return Outcome(
        test=test,
        target=record.target,
        verdict=record.verdict,
        headline=headline(record),
        signature=record.signature,
        culprit=where,
        rule=culprit.rule if culprit else "",
        confirmed=record.confirmed,
        place=line,
        command=f"ctk report {quote(str(folder))}",
        folder=".",
        seconds=record.seconds,
        graphs=1,
    )
