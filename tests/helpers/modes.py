"""Who may read a file: modes, and a walk over all that was written."""

import stat
from pathlib import Path


def mode_of(path: Path) -> int:
    """Return the permission bits of a path itself."""
    return stat.S_IMODE(path.lstat().st_mode)


def not_private(root: Path) -> list[str]:
    """Return what below a folder others may read, with its mode; nothing is the good answer."""
    wanted = {True: 0o700, False: 0o600}
    return [
        f"{path.relative_to(root)}: {mode_of(path):o}"
        for path in sorted(root.rglob("*"))
        if mode_of(path) != wanted[path.is_dir()]
    ]
