"""List and install packages with pip, whose configuration decides where they come from.

`--index` replaces that decision: pip then looks in one index, or in one folder of wheels, and its
other settings (certificates, proxies, constraints) stay.
"""

import ast
import contextlib
import http.client
import json
import os
import re
import shlex
import ssl
import sys
import urllib.request
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote, urlsplit

from ctk.compiler.errors import InstallError, StorageError
from ctk.compiler.usercode.process_name import process_name
from ctk.toolkit.processes.commands import CommandEnd, run_command_group
from ctk.toolkit.processes.scratch import OWNER

_VERSIONS = re.compile(r"^Available versions: (.+)$", re.MULTILINE)
_PAGE = re.compile(r"^Fetched page (https?://\S+) as (application/\S+json)$", re.MULTILINE)
_SETTING = re.compile(r"^(?:global|install|index|list|download)\.([\w-]+)=(.+)$", re.MULTILINE)
_PLACES = ("index-url", "extra-index-url", "find-links", "no-index", "pre")
_ELSEWHERE = (
    "PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV", "PIP_TARGET", "PIP_PREFIX", "PIP_ROOT", "PIP_PYTHON",
    "PIP_REQUIRE_VIRTUALENV", "PIP_DRY_RUN", "PIP_QUIET", "PIP_VERBOSE", "PIP_REPORT",
)  # fmt: skip
"""Variables that would lead pip to another folder, or change its output."""

_PAGE_SECONDS = 60.0
_BROKEN = re.compile(r"after connection broken by '.*?(?:>: |\(['\"]?)(.*?)['\")]*': ")
_REASON_LENGTH = 400
_NO_PIP = "No module named pip"


@dataclass(frozen=True, slots=True)
class Release:
    """A release of a package.

    Attributes:
        version: Without a local label: `2.13.0` for `2.13.0+cpu`.
        date: Of its first upload (`2026-05-13`); empty if the index does not have it.
        is_for_cpu: Whether the place has a build without CUDA, which pip then prefers.
    """

    version: str
    date: str = ""
    is_for_cpu: bool = False

    @property
    def is_nightly(self) -> bool:
        return "dev" in self.version


@dataclass(frozen=True, slots=True)
class PackageSource:
    """The place of packages.

    Attributes:
        index: The URL of an index, or a folder of wheels; empty: pip's configuration decides.
        options: The options of pip for this place.
        environ: The environment of pip.
    """

    index: str
    options: tuple[str, ...]
    environ: Mapping[str, str]


def open_source(index: str = "") -> PackageSource:
    """Return the place of packages; an index is the only place, and other settings stay."""
    environ = {name: text for name, text in os.environ.items() if name not in _ELSEWHERE}
    settings = {
        "PIP_USER": "0",
        "PIP_NO_INPUT": "1",
        "PIP_NO_COLOR": "1",
        "PIP_DISABLE_PIP_VERSION_CHECK": "1",
        OWNER: process_name(),
    }
    environ |= settings
    if not index:
        return PackageSource(index, (), environ)
    own = dict(_settings(environ)) | environ
    places = {_variable(name) for name in _PLACES}
    environ = {name: text for name, text in own.items() if name not in places}
    folder = _wheel_folder(index)
    options = ("-i", index) if folder is None else ("--no-index", "--find-links", str(folder))
    return PackageSource(index, options, environ | {"PIP_CONFIG_FILE": os.devnull})


def run_pip(
    words: Sequence[str], source: PackageSource, *, folder: Path | None = None
) -> CommandEnd:
    """Run pip of this interpreter; its processes end with this call.

    Args:
        folder: For temporary files; None for the default.

    Raises:
        InstallError: This interpreter has no pip.
    """
    environ = source.environ if folder is None else {**source.environ, "TMPDIR": str(folder)}
    done = run_command_group([sys.executable, "-m", "pip", *words], environ=environ)
    if done.code and _NO_PIP in done.output:
        raise InstallError(
            f"{sys.executable} has no pip, which lists and installs releases\n"
            f"next: {sys.executable} -m ensurepip"
        )
    return done


def install(python: Path, requirements: Iterable[str], source: PackageSource, folder: Path) -> None:
    """Install requirements into the environment of an interpreter.

    Args:
        requirements: As words of pip, options included.
        folder: For the temporary files of pip.

    Raises:
        InstallError: pip does not install them; the message has its reason.
        StorageError: The disk is full.
    """
    words = ["--python", str(python), "install", "--no-warn-script-location"]
    done = run_pip([*words, *source.options, *requirements], source, folder=folder)
    if done.code == 0:
        return
    if "No space left on device" in done.output:
        raise StorageError(
            f"{folder.parent} cannot be written: the disk is full; next: free some space, or let "
            "CTK_ENVIRONMENTS name a folder on another disk"
        )
    raise InstallError(_reason(done))


def list_releases(package: str, source: PackageSource) -> list[Release]:
    """Return the releases that pip can install here, the oldest first.

    Raises:
        InstallError: pip cannot list them.
    """
    more = ("--pre",) if source.index else ()
    done = run_pip(["index", "versions", package, "-vv", *source.options, *more], source)
    listed = _VERSIONS.search(done.output)
    if done.code or listed is None:
        where = f" in {source.index}" if source.index else ""
        words = ["index", "versions", package, *source.options, *more]
        command = [sys.executable, "-m", "pip", *words]
        raise InstallError(
            f"pip cannot list the releases of {package}{where}: {_reason(done)}\n"
            f"next: look at `{shlex.join(command)}`, or name releases: --releases 2.14.0,2.15.0"
        )
    versions = [version.strip() for version in listed[1].split(",")]
    dates = dict(_upload_dates(package, done.output, source))
    for_cpu = {version.partition("+")[0] for version in versions if "+cpu" in version}
    public = dict.fromkeys(version.partition("+")[0] for version in reversed(versions))
    return [Release(each, dates.get(each) or _date_in(each), each in for_cpu) for each in public]


def _date_in(version: str) -> str:
    """Return the date in the version of a nightly build; empty for other versions.

    >>> _date_in("2.16.0.dev20261102")
    '2026-11-02'
    """
    found = re.search(r"\.dev(\d{4})(\d\d)(\d\d)$", version)
    return "-".join(found.groups()) if found else ""


def _upload_dates(package: str, output: str, source: PackageSource) -> Iterator[tuple[str, str]]:
    """Yield versions with the date of their first file, from the pages that pip has read."""
    for url, form in dict.fromkeys(_PAGE.findall(output)):
        first: dict[str, str] = {}
        for file in _files_of(url, form, source):
            name, time = str(file.get("filename", "")), str(file.get("upload-time") or "")
            stem, _, rest = name.partition("-")
            version = rest.removesuffix(".tar.gz").partition("-")[0].partition("+")[0]
            if stem.replace("_", "-").lower() == package and re.match(r"\d{4}-\d\d-\d\d", time):
                first[version] = min(first.get(version, time), time)
        yield from ((version, time[:10]) for version, time in first.items())


def _files_of(url: str, form: str, source: PackageSource) -> list[Mapping[str, object]]:
    """Return the files that a page of an index lists; none if it cannot be read again."""
    certificate = source.environ.get("PIP_CERT") or source.environ.get("REQUESTS_CA_BUNDLE")
    request = urllib.request.Request(url, headers={"Accept": form})  # pip has read it
    with contextlib.suppress(OSError, ValueError, http.client.HTTPException):
        context = ssl.create_default_context(cafile=certificate)
        with urllib.request.urlopen(request, timeout=_PAGE_SECONDS, context=context) as page:
            found = json.load(page)
        return [file for file in found["files"] if isinstance(file, dict)]
    return []


def _wheel_folder(index: str) -> Path | None:
    """Return the folder that an index names, if wheels lie in it."""
    parts = urlsplit(index)
    if parts.scheme not in ("", "file"):
        return None
    folder = Path(unquote(parts.path)).expanduser().resolve()
    return folder if any(folder.glob("*.whl")) else None


def _settings(environ: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Yield the variables that stand for the files of pip's configuration, without its places."""
    done = run_command_group([sys.executable, "-m", "pip", "config", "list"], environ=environ)
    for name, text in _SETTING.findall(done.output if done.code == 0 else ""):
        if name not in _PLACES:
            with contextlib.suppress(ValueError, SyntaxError):
                yield _variable(name), str(ast.literal_eval(text))


def _variable(setting: str) -> str:
    return f"PIP_{setting.replace('-', '_').upper()}"


def _reason(done: CommandEnd) -> str:
    """Return the reason that pip gives for its failure."""
    lines = [line.strip() for line in done.output.splitlines() if line.strip()]
    errors = [line.removeprefix("ERROR: ") for line in lines if line.startswith("ERROR: ")]
    if done.exceeded is not None:
        return f"pip has passed its limit of {done.exceeded}"
    reason = (errors or lines or [f"pip ends with {done.code}"])[-1][:_REASON_LENGTH]
    broken = _BROKEN.findall(done.output)
    return f"{reason} (connection broken: {broken[-1][:_REASON_LENGTH]})" if broken else reason
