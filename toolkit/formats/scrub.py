"""Take out of a text what must not leave this machine: home paths."""

import re
from pathlib import Path


def scrub(text: str) -> str:
    """Return a text without home paths."""
    return shorten_home(text)


def shorten_home(text: str) -> str:
    """Replace the home folder at the start of paths in a text by `~`."""
    home = str(Path.home())
    if len(home) < 2:
        return text
    return re.sub(rf"(?<![\w.-]){re.escape(home)}(?=[/\\:'\"\s,)]|$)", "~", text)
