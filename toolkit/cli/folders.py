"""The folder that a command writes to: named by `--out`, or a new one next to where we are."""

from pathlib import Path

from ctk.compiler.errors import CaseError


def output_folder(out: Path | None, prefix: str, subject: str) -> Path:
    """Make and return an empty folder: `out`, else the first free `<prefix>_<subject>[_N]` here.

    Raises:
        CaseError: `out` holds something already, or cannot be made.
    """
    folder = out or unused_folder(Path(f"{prefix}_{subject_name(subject)}"))
    try:
        folder.mkdir(parents=True, exist_ok=True)
        is_empty = not any(folder.iterdir())
    except OSError as error:
        raise CaseError(f"--out {folder}: {error.strerror}; name another folder") from error
    if not is_empty:
        raise CaseError(f"--out {folder} is not empty; name a new folder, or remove it first")
    return folder


def subject_name(subject: str) -> str:
    """Return a short name for `dumps/train_1/graph0` or `models/net.py:build,example`."""
    file, _, _ = subject.rpartition(":")
    path = Path(file if file.endswith(".py") else subject)
    return path.resolve().stem if path.suffix == ".py" else path.resolve().name


def unused_folder(folder: Path) -> Path:
    """Return `folder`, or the first of `folder_2`, `folder_3`, … that does not exist."""
    number, candidate = 1, folder
    while candidate.exists():
        number += 1
        candidate = folder.with_name(f"{folder.name}_{number}")
    return candidate
