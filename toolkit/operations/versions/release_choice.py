"""Choose the releases to ask: all supported ones, a range, or a list of the user."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from ctk.compiler.errors import ConfigError, InstallError, nearest
from ctk.compiler.torch_compat.versions import OLDEST_SUPPORTED, OLDEST_TRITON, order_of
from ctk.toolkit.operations.options import VersionOptions
from ctk.toolkit.releases.pip_commands import PackageSource, Release, list_releases

_SHOWN = re.compile(r"^Clean run: +(?:inputs synthetic: )?reproduced on ", re.MULTILINE)
_WRITTEN = re.compile(r"this script was written with torch ([^\s+\"]+)")

OLDEST = {"torch": OLDEST_SUPPORTED, "triton": OLDEST_TRITON}
"""The first release without `--good` and `--bad`: emitted scripts are tested from there on."""


@dataclass(frozen=True, slots=True)
class Choice:
    """The releases to ask, the oldest first.

    Attributes:
        is_reversed: Whether the search is for the first good release.
    """

    releases: tuple[Release, ...]
    is_reversed: bool


def choose_releases(
    package: str, options: VersionOptions, source: PackageSource, script: Path
) -> Choice:
    """Return the releases to ask.

    Without `--bad`, an emitted script that has shown its failure with a release bounds the range
    there: the failure may be repaired in later releases. `--all` has no such bound.

    Raises:
        ConfigError: An option names a release that pip does not list, or leaves none.
        InstallError: pip cannot list the releases, which a range needs.
    """
    if options.releases:
        named = _named_releases(package, options.releases, source)
        return Choice(tuple(named), options.good_after)
    listed = list_releases(package, source)
    known_bad = find_known_bad(script) if package == "torch" and not options.every else ""
    if options.bad is None and known_bad in [each.version for each in listed]:
        options.say(f"the script fails with torch {known_bad}: that is --bad")
        options = replace(options, bad=known_bad)
    old, new = options.good, options.bad
    if is_reversed(options):
        old, new = new, old
    first = 0 if old is None else _index_of(old, listed, package)
    last = len(listed) - 1 if new is None else _index_of(new, listed, package)
    chosen = listed[first : last + 1]
    if old is None:
        least = order_of(OLDEST[package])
        chosen = [each for each in chosen if order_of(each.version) >= least] or chosen
    if not chosen:
        raise ConfigError(
            f"no release of {package} is from {old or OLDEST[package]} to {new or 'the newest'}; "
            "next: name a range with --good and --bad"
        )
    return Choice(tuple(chosen), is_reversed(options))


def find_known_bad(script: Path) -> str:
    """Return the release of torch with which an emitted script has shown its failure, or ""."""
    text = script.read_text(encoding="utf-8", errors="replace")
    shown, written = _SHOWN.search(text), _WRITTEN.search(text)
    return written[1] if shown and written else ""


def is_reversed(options: VersionOptions) -> bool:
    """Return whether the search is for the first good release: `--good-after`, or good > bad.

    Raises:
        ConfigError: The bounds contradict `--good-after`, or are equal.
    """
    if options.good is None or options.bad is None:
        return options.good_after
    good, bad = order_of(options.good), order_of(options.bad)
    if good == bad:
        raise ConfigError(f"--good {options.good} and --bad {options.bad} are the same release")
    is_later = good > bad
    if options.good_after and not is_later:
        raise ConfigError(
            f"--good-after searches from a bad release to a later good one, and --good "
            f"{options.good} is older than --bad {options.bad}; next: leave out --good-after"
        )
    return is_later


def find_release(version: str, listed: Sequence[Release], package: str) -> Release:
    """Return the release of a version that the user names: `2.13` is `2.13.0`.

    Raises:
        ConfigError: It is not listed.
    """
    return listed[_index_of(version, listed, package)]


def _index_of(version: str, listed: Sequence[Release], package: str) -> int:
    names = [each.version for each in listed]
    orders = [order_of(name) for name in names]
    if order_of(version) in orders:
        return orders.index(order_of(version))
    hint = nearest(version, names)
    raise ConfigError(
        f"pip lists no release {version} of {package} for this Python{hint}\n"
        f"it lists: {', '.join(names[-20:])}"
    )


def _named_releases(package: str, versions: Sequence[str], source: PackageSource) -> list[Release]:
    """Return releases by their versions, also if pip does not list them."""
    try:
        listed = list_releases(package, source)
    except InstallError:  # each installation reports it again
        listed = []
    known = {order_of(each.version): each for each in listed}
    named = {order_of(each): Release(each) for each in versions}
    return [known.get(key, named[key]) for key in sorted(named)]
