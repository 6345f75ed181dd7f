"""Compile programs into one package: its entry points, its path, the written files.

All checks run before the compile, which takes the time.
"""

import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from ctk.compiler.errors import ConfigError
from ctk.compiler.packages.package import DEFAULT, MANIFEST
from ctk.compiler.packages.write import Weights, write_package
from ctk.toolkit.case.usercode.program import has_own_options
from ctk.toolkit.importers.base import check_request
from ctk.toolkit.operations.compile_package.programs import Source, read_source
from ctk.toolkit.options import CaseOptions
from ctk.toolkit.oracle.progress import Say, silent

SUFFIX = ".ctk"
_NAMED = re.compile(r"([A-Za-z_][A-Za-z0-9_.-]*)=(.+)", re.DOTALL)

_LOCAL_HEADER_NBYTES = 30  # of a zip's first member, in front of its name


@dataclass(frozen=True, slots=True)
class Written:
    """A package that was written.

    Attributes:
        seconds: How long it took, with loading the programs.
    """

    path: Path
    entries: tuple[str, ...]
    nbytes: int
    seconds: float


def compile_package(
    programs: Sequence[str],
    out: str | Path | None = None,
    *,
    config: Mapping[str, object] | None = None,
    weights: Weights = "keep",
    as_tuple: bool = False,
    dynamic: bool = False,
    trust: bool = False,
    say: Say = silent,
) -> Written:
    """Compile programs ahead of time into one package.

    Args:
        programs: Each `FILE.pt2`, `FILE.py` or `FILE.py:build,example`. `NAME=FILE.pt2` names its
            entry point; a single one without is `forward`, one of several is called as its file.
        out: The file to write; the default is called as the program's file, here (`model.ctk` for
            several). A package that is there is replaced, once the new one is whole.
        config: Options of the compile; they win over the options of a program's file.
        weights: `keep` them in the package, or `leave_out`: then they are bound when it is loaded.
        as_tuple: Results are flat tuples, however the models nest them.
        dynamic: Sizes of a FILE.py vary where its model lets them.
        trust: Archives may hold pickles that run code when they are read.
        say: Called with each step, as text.

    Raises:
        ConfigError: An option is unknown; two entry points have one name; the file cannot go there.
        ProgramError: A program cannot be loaded.
        TrustError: An archive is refused.
        CaptureError: torch.export cannot trace a program.
        ArtifactError: A program cannot be a package; the message has the reason.
        StorageError: The file cannot be written.
    """
    started = time.monotonic()
    named = _name_programs(programs)
    brings = any(not each.endswith(".pt2") and has_own_options(each) for each in named.values())
    check_request(CaseOptions(config=config), brings_options=brings)
    target = _target(out, named)
    sources: dict[str, Source] = {}
    for number, (name, spec) in enumerate(named.items()):
        sources[name] = read_source(spec, dynamic=dynamic, trust=trust)
        say(f"loaded {spec}", number + 1, len(named))
    options = {**_common_config(sources), **(config or {})}
    say(f"compiling {', '.join(sources)}")
    entries = {name: each.program for name, each in sources.items()}
    write_package(target, entries, options, weights=weights, as_tuple=as_tuple)
    seconds = time.monotonic() - started
    return Written(target, tuple(sources), target.stat().st_size, seconds)


def _name_programs(programs: Sequence[str]) -> dict[str, str]:
    """Return the programs by the names of their entry points.

    Raises:
        ConfigError: There are none, or two have one name.
    """
    found: dict[str, str] = {}
    for given in programs:
        match = None if Path(given).exists() else _NAMED.fullmatch(given)
        name, spec = match.groups() if match else ("", given)
        if not name:
            is_only = len(programs) == 1
            name = DEFAULT if is_only else re.sub(r"\W+", "_", _stem(spec)).strip("_")
        if name in found:
            raise ConfigError(
                f"two entry points are called {name!r}: {found[name]} and {spec}\n"
                "next: name them: NAME=FILE.pt2 OTHER=FILE.pt2"
            )
        found[name] = spec
    if not found:
        raise ConfigError("a package needs a program; next: ctk compile FILE.pt2 -o model.ctk")
    return found


def _stem(spec: str) -> str:
    """Return the name of the file of a spec, without its ending."""
    file, _, _ = spec.rpartition(":")
    return Path(file if file.endswith(".py") else spec).stem


def _target(out: str | Path | None, named: Mapping[str, str]) -> Path:
    """Return the file to write.

    Raises:
        ConfigError: It cannot be there: no such folder, or something else is there.
    """
    stem = _stem(next(iter(named.values()))) if len(named) == 1 else "model"
    path = Path(out).expanduser() if out is not None else Path(f"{stem}{SUFFIX}")
    if path.is_dir():
        raise ConfigError(f"{path} is a folder: name the file: -o {path / (stem + SUFFIX)}")
    if not path.parent.is_dir():
        raise ConfigError(f"no such folder: {path.parent}; make it, or name another file with -o")
    if path.exists() and not _is_ours(path):
        raise ConfigError(
            f"{path} exists and is not a package, so it is kept: remove it, or name another "
            "file with -o"
        )
    return path


def _is_ours(path: Path) -> bool:
    """Return whether a file is a package, sound or not, or empty: one may take its place."""
    with path.open("rb") as file:
        start = file.read(_LOCAL_HEADER_NBYTES + len(MANIFEST))
    name = start[_LOCAL_HEADER_NBYTES:]
    return not start or (start.startswith(b"PK\3\4") and name == MANIFEST.encode())


def _common_config(sources: Mapping[str, Source]) -> Mapping[str, object]:
    """Return the options that the programs' files ask for.

    Raises:
        ConfigError: Two ask for other ones.
    """
    (first, chosen), *others = [(name, each.config) for name, each in sources.items()]
    for name, config in others:
        if dict(config) != dict(chosen):
            raise ConfigError(
                f"{first} asks for the options {dict(chosen)} and {name} for {dict(config)}: a "
                "package is compiled with one set of options"
            )
    return chosen
