"""The subject of an issue: the failing case or program in a folder, with its diagnosis.

OUT/diagnosis.json  OUT/minimal/            diagnose: the smallest case or program
OUT/diagnosis.json  OUT/case/               minify: the smallest case
CASE/manifest.json                          a case with a failure, without a diagnosis
"""

from dataclasses import dataclass
from pathlib import Path

from ctk.compiler.errors import CaseError, TrustError
from ctk.toolkit.case.case import Case
from ctk.toolkit.case.case_replacement import whole_case
from ctk.toolkit.case.failure import Signature
from ctk.toolkit.case.formats.bounded_file import check_no_link, read_bounded
from ctk.toolkit.case.formats.folder_walk import require_folder
from ctk.toolkit.case.formats.limits import TEXT_NBYTES
from ctk.toolkit.case.manifest import MANIFEST
from ctk.toolkit.case.store import load_case
from ctk.toolkit.end_to_end.answer import EndToEnd
from ctk.toolkit.operations.report.as_json import FILE, CulpritRecord, Record, read_json
from ctk.toolkit.operations.report.phrases import VERDICTS
from ctk.toolkit.oracle.answers.resume_command import other_command
from ctk.toolkit.repro.run import REPRO

PROGRAM = "program.py"
_PLACES = ("minimal", "case")


@dataclass(frozen=True, slots=True)
class IssueSubject:
    """The failure to report.

    Attributes:
        folder: The folder of the case or program, with its `repro.py` if one was written.
        signature: The failure of the smallest case.
        case: The smallest case; None if only the program as a whole fails.
        program: Text of the smallest program, if no graph of it fails.
        record: The diagnosis; None for a case alone.
    """

    folder: Path
    signature: Signature
    case: Case | None = None
    program: str = ""
    record: Record | None = None

    @property
    def whole(self) -> EndToEnd | None:
        """The answer about a program of which no graph fails; None for a case."""
        return self.record.end_to_end if self.record is not None and self.program else None

    @property
    def target(self) -> str:
        """The compiler under test."""
        if self.case is not None:
            return self.case.target
        return self.whole.target if self.whole is not None else ""

    @property
    def target_name(self) -> str:
        """The compiler under test, without the folder of its file."""
        return Path(self.target).name

    @property
    def culprit(self) -> CulpritRecord | None:
        """The cause, if the diagnosis names one."""
        return self.record.culprit if self.record is not None else None


def read_subject(folder: Path, *, trust: bool = False) -> IssueSubject:
    """Read the failure in a folder.

    Raises:
        CaseError: There is no failure in it, or no case to run.
        TrustError: It would run code, and is not trusted.
    """
    require_folder(folder, "name the folder of a diagnosis or a case")
    if not (folder / FILE).is_file():
        return _of_case(folder, None, trust=trust)
    record = read_json(folder)
    if record.signature is None or record.verdict.value != "reproduces":
        raise CaseError(
            f"{folder} has no failure to report ({VERDICTS[record.verdict]}); next: diagnose the "
            "program that fails"
        )
    if record.decided_by:
        raise CaseError(
            f"the failure in {folder} was decided by {record.decided_by}, which no reader of an "
            "issue has; next: diagnose it by a comparison with eager"
        )
    whole = record.end_to_end
    if whole is not None and whole.judgement.fails:
        return _of_program(folder, record, trust=trust)
    places = [folder / name for name in _PLACES if (folder / name / MANIFEST).is_file()]
    if not places:
        command = other_command(folder, "minify") or "ctk minify"
        raise CaseError(
            f"{folder} has a diagnosis and no case to run: bisect-pass writes none; next: {command}"
        )
    return _of_case(places[0], record, trust=trust)


def _of_case(folder: Path, record: Record | None, *, trust: bool) -> IssueSubject:
    if not (whole_case(folder) / MANIFEST).is_file():
        raise CaseError(
            f"{folder} is neither a diagnosis nor a case; next: ctk diagnose FILE.py --out {folder}"
        )
    case = load_case(folder, trust=trust, allow_imports=())
    if case.signature is None:
        raise CaseError(
            f"the case in {folder} records no failure; next: ctk diagnose {folder} --out DIR"
        )
    return IssueSubject(folder, case.signature, case, record=record)


def _of_program(folder: Path, record: Record, *, trust: bool) -> IssueSubject:
    place = folder / "minimal"
    path = place / PROGRAM
    if not path.is_file():
        raise CaseError(
            f"{folder} has no program to run: only diagnose and minify write the smallest one; "
            f"next: {other_command(folder, 'diagnose') or 'ctk diagnose FILE.py'}"
        )
    if not trust:
        raise TrustError(
            f"{folder} is not trusted, and its program would run: {path}\n"
            "next: read it, and add --trust (in Python: trust=True) if you trust who wrote it"
        )
    whole = record.end_to_end
    assert whole is not None and whole.judgement.signature is not None, "it fails"
    check_no_link(folder, path)
    text = read_bounded(path, TEXT_NBYTES).decode(errors="replace")
    return IssueSubject(place, whole.judgement.signature, program=text, record=record)


def attachments(folder: Path) -> list[Path]:
    """Return the files of a folder that run the full repro."""
    names = (REPRO, "repro.safetensors", "sources")
    return [folder / name for name in names if (folder / name).exists()]
