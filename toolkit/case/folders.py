"""The folder that an operation writes to: the one that was named, or a new one here."""

from pathlib import Path

from ctk.compiler.errors import CaseError
from ctk.toolkit.case.formats.files import free_path, make_folder, storing


def output_folder(out: str | Path | None, default: str) -> Path:
    """Make and return an empty folder: `out`, else the first free `<default>[_N]` here.

    Raises:
        CaseError: `out` holds something already.
        StorageError: It cannot be made.
    """
    folder = Path(out).expanduser() if out is not None else free_path(Path(default))
    with storing(make_folder(folder)):
        is_empty = not any(folder.iterdir())
    if not is_empty:
        raise CaseError(f"{folder} is not empty; name a new folder, or remove it first")
    return folder
