"""The files of the user on which the answers of a command or function depend, found by name.

    python check.py {case}                 check.py, and its imports from the same folder
    sh -c 'cd tools && ./check.sh {case}'  tools/check.sh, and the files that it names in turn
    python -m my_checks.one {case}         my_checks/one.py, and its imports

A name counts if a file of that name exists beside the script that names it, in the working folder
or in a folder that is named as well. Nothing is run, and installed packages are not followed. A
name that a program computes at run time is missed.
"""

import os
import re
import shlex
import shutil
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import pairwise
from pathlib import Path

from ctk.compiler.usercode.python_files import is_installed
from ctk.compiler.usercode.references import Reference, files_of, files_of_import
from ctk.toolkit.case.usercode.named_sources import source_files

_LARGEST_SCRIPT = 1 << 16
"""Bytes up to which a script is read for names."""

_BETWEEN = re.compile(r"[\s'\"`;|&()<>{}=,]+")
_SHELL = re.compile(rb"#!.*\b(?:ba|da|k|z)?sh\b")
_PYTHON = re.compile(rb"#!.*\bpython[\d.]*\b")


def files_of_command(words: Sequence[str]) -> tuple[Path, ...]:
    """Return the program of a command, if the user named its file, and all files that it names."""
    found: dict[Path, None] = {}
    program = shutil.which(words[0]) if words else None
    if program is not None and not _is_of_system(Path(program)):
        _add(Path(program), found)
    _add_named([text for word in words for text in _texts_in(word)], [Path.cwd()], found)
    folder = Path.cwd()
    for module in _modules_run(words):
        for name in (module, f"{module}.__main__"):
            for file in files_of_import(name, folder / "__main__.py", folder):
                found |= dict.fromkeys(files_of(file, folder))
    return tuple(found)


def files_of_reference(reference: str) -> tuple[Path, ...]:
    """Return the file that `place:name` means, and its imports from the same folder."""
    if Reference.parse(reference) is None:
        return ()
    files = source_files(reference, {}, Path.cwd())
    return tuple(dict.fromkeys(each for file in files for each in files_of(file)))


def _texts_in(word: str) -> Iterator[str]:
    """Yield possible names: the word, and each part of a text that a shell would run.

    >>> list(_texts_in("cd a && python 'b c.py' >d"))[1:]
    ['cd', 'a', 'python', 'b', 'c.py', 'd', '&&', 'b c.py', '>d']
    """
    parts = [part for part in _BETWEEN.split(word) if part]
    with_spaces: list[str] = []
    with suppress(ValueError):  # an open quote: the run reports it
        with_spaces = shlex.split(word)
    yield from dict.fromkeys([word, *parts, *with_spaces])


def _add_named(texts: Iterable[str], folders: Sequence[Path], found: dict[Path, None]) -> None:
    """Add the files that texts name, in some folders or in folders that the texts name."""
    expanded = map(os.path.expandvars, texts)
    names = [os.path.expanduser(text) for text in expanded]  # noqa: PTH111  # Path's may raise
    named = [folder / name for name in names for folder in folders]
    places = dict.fromkeys([*folders, *(place for place in named if _is_kind(place, "dir"))])
    for name in names:
        # only the shell can expand `$0` and its like: `$here/check.py`
        name = name.rpartition("/")[2] if "$" in name else name
        for folder in places:
            if name and _is_kind(folder / name, "file"):
                _add(folder / name, found)


def _add(file: Path, found: dict[Path, None]) -> None:
    file = Path(os.path.normpath(Path.cwd() / file))
    if file in found:
        return
    found[file] = None
    head = _head(file)
    if file.suffix == ".py" or _PYTHON.match(head):
        if not is_installed(file):
            found |= dict.fromkeys(files_of(file))
    elif file.suffix in (".sh", ".bash") or _SHELL.match(head):
        _add_named(_texts_in(head.decode(errors="replace")), [Path.cwd(), file.parent], found)


def _head(file: Path) -> bytes:
    try:
        with file.open("rb") as opened:
            return opened.read(_LARGEST_SCRIPT)
    except OSError:  # it is there and cannot be read: its digest is empty
        return b""


def _is_kind(path: Path, kind: str) -> bool:
    try:
        return path.is_dir() if kind == "dir" else path.is_file()
    except (OSError, ValueError):  # too long for a name, or with a zero byte
        return False


def _is_of_system(program: Path) -> bool:
    return program.parent in map(Path, ("/bin", "/usr/bin", "/usr/local/bin", "/sbin", "/usr/sbin"))


def _modules_run(words: Sequence[str]) -> Iterator[str]:
    """Yield the modules behind `-m`, also in a text for a shell."""
    texts = [part for word in words for part in _BETWEEN.split(word)]
    for option, module in pairwise(texts):
        if option == "-m" and all(part.isidentifier() for part in module.split(".")):
            yield module
