"""Import case folders: one case, or every case of a dump.

A case that would run or import anything beyond torch's operators is refused, unless the request
trusts it; the target and options of the request itself need no trust.
"""

from pathlib import Path
from shlex import quote

from ctk.compiler.errors import CaseError, NoSuchCase
from ctk.toolkit.case.case import Case
from ctk.toolkit.case.case_listing import find_cases
from ctk.toolkit.case.formats.folder_walk import Walk, require_folder
from ctk.toolkit.case.manifest import MANIFEST
from ctk.toolkit.case.store import load_case
from ctk.toolkit.case.trust.demands import UserOverrides
from ctk.toolkit.importers.base import Importer, apply_request
from ctk.toolkit.options import CaseOptions


class CaseFolder(Importer):
    """A folder, or its manifest; also a name without a file, so that the error is about folders."""

    form = "a case folder or dump"
    is_case_folder = True

    @staticmethod
    def accepts(spec: str) -> bool:
        path = Path(spec).expanduser()
        return not path.is_file() or path.name == MANIFEST

    def cases(self, request: CaseOptions) -> list[Case]:
        """Load the case of a folder, or each case of a dump.

        Raises:
            TrustError: One of them needs trust that the request does not give.
        """
        path = Path(self.text).expanduser()
        folders = case_folders(path.parent if path.is_file() else path)
        given, allowed = UserOverrides(request.target, request.config), tuple(request.allow_imports)
        loaded = [
            load_case(folder, trust=request.trust, allow_imports=allowed, given=given)
            for folder in folders
        ]
        return [apply_request(case, request) for case in loaded]


def case_folders(folder: Path) -> list[Path]:
    """Return `folder` itself if it is a case, else the cases below it.

    Raises:
        CaseError: No such folder, or there is no finished case in it.
    """
    require_folder(folder)
    if (folder / MANIFEST).exists():
        return [folder]
    walk = Walk(folder)
    found = [entry.path for entry in find_cases(walk) if entry.problem is None]
    if walk.is_cut:
        raise CaseError(f"{folder} holds more than {walk.limit:,} folders: name one in it")
    if not found:
        raise NoSuchCase(
            f"no case in {folder}: it has no {MANIFEST}\n  look at it: ctk ls {quote(str(folder))}"
        )
    return found


IMPORTER = CaseFolder
