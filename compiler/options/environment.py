"""The `CTK_*` environment variables: the one place that parses them.

It lives in the compiler because the `ctk` backend honours `CTK_FUEL`, `CTK_DISABLE` and
`CTK_ON_FAILURE` without the toolkit. It parses and validates; the modules that use a
variable decide its effect (config.py, toolkit/watch/hooks.py).

| variable | values | meaning |
|---|---|---|
| `CTK_DUMP` | a folder | save each captured graph and the graph after every stage and pass |
| `CTK_CHECK` | `off`, `output`, `pass` | compare the first call with eager |
| `CTK_CHECK_EVERY` | a count from 0 | compare every N-th call of each compiled graph with eager |
| `CTK_CHECK_WHEN` | `nan`, `inf`, `loss>10` | compare a call whose results meet a condition |
| `CTK_RING` | a count from 0 | keep the last calls of each graph on disk, values included |
| `CTK_ON_FAILURE` | `raise`, `fallback`, `warn` | reaction to a failure in the running program |
| `CTK_INPUTS` | `recipe`, `full`, `none`, `failing` | how inputs and weights are saved |
| `CTK_FUEL` | a count from 0 | limit of the rewrites of each compile |
| `CTK_DISABLE` | `pass,stage/pass` | passes that do not run |
| `CTK_QUOTA` | `500M`, `2G` | size of the dump folder; the oldest dumps make room |
| `CTK_MEMORY` | `500M`, `8G` | memory limit of a question in a child process |
| `CTK_SHARE` | `1`, `0` | files are private (0700, 0600); 1: the umask decides |
| `CTK_GEN_PATTERNS` | `1`, `0` | trace patterns, and write them beside their modules |
| `CTK_CACHE` | `1`, `0` | store compiled graphs for later processes, and load stored ones |
| `CTK_CACHE_DIR` | a folder | its folder, if not `$XDG_CACHE_HOME/ctk` or `~/.cache/ctk` |
| `CTK_CACHE_SIZE` | `500M`, `2G` | limit of its size; the least recently used entries make room |
| `CTK_ENVIRONMENTS` | a folder | for `bisect-version`, if not `environments` in the cache |
"""

import os
import re
import warnings
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar, cast, get_args

from ctk.compiler.errors import any_of, nearest, not_taken
from ctk.compiler.options.choices import Check, OnFailure, WatchedInputs
from ctk.compiler.options.conditions import Condition, parse_conditions

T = TypeVar("T")

VARIABLES = (
    "CTK_DUMP", "CTK_CHECK", "CTK_CHECK_EVERY", "CTK_CHECK_WHEN", "CTK_RING", "CTK_ON_FAILURE",
    "CTK_INPUTS", "CTK_FUEL", "CTK_DISABLE", "CTK_QUOTA", "CTK_MEMORY", "CTK_SHARE",
    "CTK_GEN_PATTERNS", "CTK_CACHE", "CTK_CACHE_DIR", "CTK_CACHE_SIZE", "CTK_ENVIRONMENTS",
)  # fmt: skip

DEFAULT_CACHE_NBYTES = 2 << 30

_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([KMGT]?)(?:i?B)?", re.IGNORECASE)
_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}


@dataclass(frozen=True, slots=True)
class Environment:
    """The variables, parsed; None or an empty tuple means not set."""

    dump: Path | None = None
    check: Check | None = None
    on_failure: OnFailure | None = None
    inputs: WatchedInputs | None = None
    fuel: int | None = None
    disable: tuple[str, ...] = ()
    quota_nbytes: int | None = None
    memory_nbytes: int | None = None
    share: bool | None = None
    check_every: int | None = None
    check_when: tuple[Condition, ...] = ()
    ring: int | None = None

    @property
    def wants_hooks(self) -> bool:
        """Whether the toolkit must watch each compile."""
        watches_later_calls = bool(self.check_every or self.check_when or self.ring)
        return self.dump is not None or self.check in ("output", "pass") or watches_later_calls

    def config_changes(self) -> dict[str, object]:
        """Return the options of `Config` that the set variables change."""
        changes = {"fuel": self.fuel, "disable": self.disable, "on_failure": self.on_failure}
        return {name: value for name, value in changes.items() if value not in (None, ())}


@dataclass(frozen=True, slots=True)
class CacheSettings:
    """The variables of the persistent cache.

    Attributes:
        is_on: Whether it is used, by `CTK_CACHE`; None if that is not set.
        folder: Its folder; None if no variable names one, and the user has no home.
        limit_nbytes: Limit of its size.
    """

    is_on: bool | None
    folder: Path | None
    limit_nbytes: int


def read_environment(environ: Mapping[str, str] | None = None) -> Environment:
    """Parse the `CTK_*` variables; an empty value counts as not set.

    A similar but unknown name (`CTK_DMUP`) would be ignored, so it is warned about.

    Args:
        environ: The variables; the environment of this process when None.

    Raises:
        ConfigError: A value is not allowed; the message has the allowed ones.
    """
    source = os.environ if environ is None else environ
    for message in misspelt(source):
        warnings.warn(message, UserWarning, stacklevel=2)
    return Environment(
        dump=_read(source, "CTK_DUMP", _folder),
        check=cast("Check | None", _read(source, "CTK_CHECK", _choice(Check))),
        on_failure=cast("OnFailure | None", _read(source, "CTK_ON_FAILURE", _choice(OnFailure))),
        inputs=cast("WatchedInputs | None", _read(source, "CTK_INPUTS", _choice(WatchedInputs))),
        fuel=_read(source, "CTK_FUEL", _count("rewrites")),
        disable=_read(source, "CTK_DISABLE", _names) or (),
        quota_nbytes=_read(source, "CTK_QUOTA", parse_size),
        memory_nbytes=_read(source, "CTK_MEMORY", parse_size),
        share=_read(source, "CTK_SHARE", _share),
        check_every=_read(source, "CTK_CHECK_EVERY", _count("calls")),
        check_when=_read(source, "CTK_CHECK_WHEN", parse_conditions) or (),
        ring=_read(source, "CTK_RING", _count("calls")),
    )


def shares_files() -> bool:
    """Return whether other users may read files of ctk, as far as the umask lets them.

    Raises:
        ConfigError: `CTK_SHARE` is neither 0 nor 1.
    """
    return _read(os.environ, "CTK_SHARE", _share) or False


def environment_dump() -> Path | None:
    """Return the dump folder that `CTK_DUMP` names; None if it names none.

    Raises:
        ConfigError: It is a file.
    """
    return _read(os.environ, "CTK_DUMP", _folder)


def generates_patterns() -> bool:
    """Return whether patterns are traced and written instead of loaded.

    Raises:
        ConfigError: `CTK_GEN_PATTERNS` is neither 0 nor 1.
    """
    on, off = "trace patterns and write them", "load them"
    return _read(os.environ, "CTK_GEN_PATTERNS", _switch(on, off)) or False


def cache_settings(environ: Mapping[str, str] | None = None) -> CacheSettings:
    """Return the settings of the persistent cache.

    Args:
        environ: The variables; the environment of this process when None.

    Raises:
        ConfigError: A value is not allowed; the message has the allowed ones.
    """
    source = os.environ if environ is None else environ
    return CacheSettings(
        is_on=_read(source, "CTK_CACHE", _switch("use the persistent cache", "leave it alone")),
        folder=_read(source, "CTK_CACHE_DIR", _folder) or _default_cache_folder(source),
        limit_nbytes=_read(source, "CTK_CACHE_SIZE", parse_size) or DEFAULT_CACHE_NBYTES,
    )


def environments_folder(environ: Mapping[str, str] | None = None) -> Path | None:
    """Return the folder of the environments of `bisect-version`; None if this user has no home.

    Args:
        environ: The variables; the environment of this process when None.

    Raises:
        ConfigError: A variable names a file.
    """
    source = os.environ if environ is None else environ
    named = _read(source, "CTK_ENVIRONMENTS", _folder)
    cache = cache_settings(source).folder
    return named or (cache and cache / "environments")


def _default_cache_folder(source: Mapping[str, str]) -> Path | None:
    """Return the folder that the XDG Base Directory Specification names: absolute, or ignored."""
    named = Path(source.get("XDG_CACHE_HOME", ""))
    try:
        return (named if named.is_absolute() else Path.home() / ".cache") / "ctk"
    except RuntimeError:  # no HOME, and no entry in the user database
        return None


def misspelt(names: Iterable[str]) -> list[str]:
    """Return a sentence for each name that looks like a misspelt variable of ctk."""
    strangers = (n for n in names if n.upper().startswith("CTK") and n not in VARIABLES)
    hints = ((name, nearest(name.upper(), VARIABLES, cutoff=0.8)) for name in strangers)
    return [f"the environment variable {name} is ignored{hint}" for name, hint in hints if hint]


def parse_size(text: str) -> int:
    """Return the bytes of `500M`, `1.5G`, `2GiB` or `4096`; units are powers of 1024.

    Raises:
        ValueError: The text is not a size above zero; the message is the allowed form.
    """
    match = _SIZE.fullmatch(text.strip())
    nbytes = int(float(match[1]) * _UNITS[match[2].upper()]) if match else 0
    if nbytes <= 0:
        raise ValueError("a size above zero such as 500M or 2G (units K, M, G, T)")
    return nbytes


def _read(source: Mapping[str, str], name: str, parse: Callable[[str], T]) -> T | None:
    text = source.get(name, "").strip()
    if not text:
        return None
    try:
        return parse(text)
    except ValueError as error:
        raise not_taken(name, text, *error.args) from error


def _choice(literal: object) -> Callable[[str], str]:
    allowed = get_args(literal)

    def parse(text: str) -> str:
        if text.lower() not in allowed:
            raise ValueError(any_of(allowed), nearest(text.lower(), allowed))
        return text.lower()

    return parse


def _folder(text: str) -> Path:
    folder = Path(text).expanduser()
    if folder.exists() and not folder.is_dir():
        raise ValueError("a folder (it is created when missing)", ", which is a file")
    return folder


def _switch(on: str, off: str) -> Callable[[str], bool]:
    def parse(text: str) -> bool:
        if text not in ("0", "1"):
            raise ValueError(f"1 ({on}) or 0 ({off})")
        return text == "1"

    return parse


_share = _switch("the umask decides who may read", "only you")


def _count(things: str) -> Callable[[str], int]:
    def parse(text: str) -> int:
        if not (text.isascii() and text.isdigit()):
            raise ValueError(f"a count of {things} from 0")
        return int(text)

    return parse


def _names(text: str) -> tuple[str, ...]:
    names = tuple(name.strip() for name in text.split(",") if name.strip())
    if not names:
        raise ValueError("pass names with commas between, such as fold,joint/cse")
    return names
