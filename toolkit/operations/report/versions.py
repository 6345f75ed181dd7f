"""Words and data of a search over releases.

first bad: torch 2.14.0 (good: 2.13.0); with triton 3.7.1 alone it passes: triton did it
"""

from collections.abc import Iterator, Sequence

from ctk.compiler.errors import count_of
from ctk.toolkit.operations.versions.version_search import AskedRelease, VersionReport

REPOSITORIES = {
    "torch": "https://github.com/pytorch/pytorch",
    "triton": "https://github.com/triton-lang/triton",
}


def headline(found: VersionReport) -> str:
    """Return the answer in one line."""
    bad, good = found.having("bad"), found.having("good")
    if not bad and not good:
        return f"cannot tell: no {_kind(found)} has an answer"
    if found.releases[0].python:
        return "; ".join(
            f"{_name(each, found)} ({each.python}) {_verb(each)}" for each in found.releases
        )
    if found.undecided:
        missing = f"{found.package} {_versions(found.undecided)}"
        return f"cannot tell: no answer of {missing}; {_every(found, bad or good)}"
    if not bad:
        return f"no failure: {_every(found, good)}"
    if not found.is_monotone:
        return _several_changes(found)
    if found.change is None:
        first = "good" if found.is_reversed else "bad"
        return f"no first {first} release: {_every(found, bad)}"
    before, after = found.change
    first = "good" if found.is_reversed else "bad"
    if found.unanswered:
        return (
            f"cannot tell: the first {first} release of {found.package} is after "
            f"{before.release.version} ({_word(before)}) and at most {after.release.version} "
            f"({_word(after)}); no answer: {_versions(found.unanswered)}{_of_triton(found)}"
        )
    others = f" ({_word(before)}: {before.release.version})"
    torch = f", with torch {found.torch}" if found.torch else ""
    return f"first {first}: {_name(after, found)}{others}{torch}{_of_triton(found)}"


def lines(found: VersionReport) -> Iterator[str]:
    """Yield the facts behind the answer, one line each."""
    if found.change is not None:
        before, after = found.change
        yield f"released   {_released(after)} (before: {_released(before)})"
        yield f"commits    {compare_link(found)}"
        if found.package == "torch":
            yield from _triton_lines(found)
    bad = found.having("bad")
    reason = next((each.answer.reason for each in bad if each.answer), "")
    yield from [f"failure    {reason}"] * bool(reason)
    if not found.is_monotone and found.change is not None:
        yield "note       the answers change more than once (--all asks each release)"
    if found.is_reversed and not found.releases[0].python:
        yield (
            "note       the search was for the first good release (--good-after, or --good is "
            "newer than --bad)"
        )
    yield f"cost       {count_of(found.questions, 'question')}, {found.seconds:.0f} s"
    yield f"script     {found.script}"
    yield f"written    {found.folder}"
    yield from (f"next       {step}" for step in _next_steps(found))


def compare_link(found: VersionReport) -> str:
    """Return the link to the commits between the two releases of the change."""
    assert found.change is not None, "there is a change"
    marks = [_mark(each, found.package) for each in found.change]
    return f"{REPOSITORIES[found.package]}/compare/{'...'.join(marks)}"


def rows(releases: Sequence[AskedRelease]) -> Iterator[tuple[str, str, str, str, str]]:
    """Yield the cells of a table: release, date, Triton, answer, reason."""
    for each in releases:
        answer = each.answer
        versions = answer.versions if answer is not None else None
        name = f"{each.release.version} {each.python}".strip()
        triton = versions.triton if versions is not None else ""
        outcome = answer.outcome if answer is not None else "not asked"
        reason = answer.reason if answer is not None else ""
        yield name, each.release.date or "unknown", triton or "-", outcome, reason


def report_data(found: VersionReport) -> dict[str, object]:
    """Return the JSON form of a search."""
    change, check = found.change, found.triton
    return {
        "package": found.package,
        "torch": found.torch or None,
        "first": "good" if found.is_reversed else "bad",
        "release": change and change[1].release.version,
        "released": (change and change[1].release.date) or None,
        "before": change and change[0].release.version,
        "commits": compare_link(found) if change else None,
        "is_monotone": found.is_monotone,
        "unanswered": [each.release.version for each in found.unanswered],
        "triton": check
        and {
            "own": check.own,
            "given": check.given,
            "outcome": check.answer.outcome,
            "reason": check.answer.reason,
        },
        "releases": [_row_data(each) for each in found.releases],
        "script": str(found.script),
        "folder": str(found.folder),
        "environments": str(found.root) if found.root else None,
    }


def _row_data(each: AskedRelease) -> dict[str, object]:
    answer = each.answer
    versions = answer.versions if answer is not None else None
    return {
        "version": each.release.version,
        "released": each.release.date or None,
        "interpreter": each.python or None,
        "outcome": answer.outcome if answer else None,
        "exit_code": answer.exit_code if answer else None,
        "reason": answer.reason if answer else None,
        "seconds": answer.seconds if answer else None,
        "torch": versions.torch if versions else None,
        "commit": (versions.commit or None) if versions else None,
        "triton": (versions.triton or None) if versions else None,
        "python": versions.python if versions else None,
    }


def _of_triton(found: VersionReport) -> str:
    """Return the part of the answer about Triton; empty if it was not asked apart."""
    check = found.triton
    if check is None:
        return ""
    with_triton = f"; with triton {check.given}"
    if check.answer.outcome == "good":
        return f"{with_triton} alone it passes: triton did it"
    if check.answer.outcome == "bad":
        return f"{with_triton} it still fails: torch did it"
    return f"{with_triton} alone the script gives no answer"


def _triton_lines(found: VersionReport) -> Iterator[str]:
    assert found.change is not None, "there is a change"
    check, brought = found.triton, [_triton_of(each) for each in found.change]
    if check is not None:
        before, after = found.change
        yield (
            f"triton     {brought[0]} in torch {before.release.version}, "
            f"{brought[1]} in torch {after.release.version}"
        )
        if check.answer.outcome == "good":
            marks = "...".join(f"v{_base(version)}" for version in brought)
            yield f"commits    {REPOSITORIES['triton']}/compare/{marks}"
        if check.answer.outcome == "cannot tell":
            yield f"           with triton {check.given}: {check.answer.reason}"
    elif all(brought) and brought[0] == brought[1]:
        yield f"triton     {brought[0]} in both: torch did it"
    else:
        lacking = [each.release.version for each in found.change if not _triton_of(each)]
        yield f"triton     not asked: torch {' and '.join(lacking)} brings none here"


def _next_steps(found: VersionReport) -> Iterator[str]:
    first, last = found.releases[0], found.releases[-1]
    is_fixed = not found.is_reversed and last.is_bad is False and first.is_bad is not False
    if is_fixed and not first.python:
        yield "--good-after, if an older release fails: it finds the release that repaired it"
    lacks = (each.answer and "No module named" in each.answer.reason for each in found.releases)
    if any(lacks) and not first.python:
        yield "--with PACKAGE installs a package that the script imports"


def _several_changes(found: VersionReport) -> str:
    bad, good = found.having("bad"), found.having("good")
    if not found.is_reversed and found.releases[-1].is_bad is False and found.before is not None:
        last = found.releases[found.before]
        return f"no failure in {_name(last, found)}; {_versions(bad)} failed"
    fail, passing = ("fail" + "s" * (len(bad) == 1), "pass" + "es" * (len(good) == 1))
    return f"several changes: {found.package} {_versions(bad)} {fail}; {_versions(good)} {passing}"


def _every(found: VersionReport, alike: Sequence[AskedRelease]) -> str:
    names, verb = f"{found.package} {alike[0].release.version}", _verb(alike[0])
    if len(alike) > 1:
        names = f"{names} to {alike[-1].release.version}"
        verb = "fail" if alike[0].is_bad else "pass"
    return f"{names} {verb} ({count_of(len(alike), 'release')} asked)"


def _name(each: AskedRelease, found: VersionReport) -> str:
    lacks_torch = each.python and each.release.version == "none"
    return "no torch" if lacks_torch else f"{found.package} {each.release.version}"


def _kind(found: VersionReport) -> str:
    return "interpreter" if found.releases[0].python else f"release of {found.package}"


def _verb(each: AskedRelease) -> str:
    return "has no answer" if each.is_bad is None else "fails" if each.is_bad else "passes"


def _word(each: AskedRelease) -> str:
    return "bad" if each.is_bad else "good"


def _versions(releases: Sequence[AskedRelease]) -> str:
    *others, last = (each.release.version for each in releases)
    return f"{', '.join(others)} and {last}" if others else last


def _released(each: AskedRelease) -> str:
    return f"{each.release.version} on {each.release.date or 'an unknown date'}"


def _triton_of(each: AskedRelease) -> str:
    versions = each.answer.versions if each.answer else None
    return versions.triton if versions else ""


def _mark(each: AskedRelease, package: str) -> str:
    """Return the tag of a release, the commit of a nightly one."""
    versions = each.answer.versions if each.answer else None
    is_commit = package == "torch" and each.release.is_nightly and versions and versions.commit
    return versions.commit if is_commit and versions else f"v{each.release.version}"


def _base(version: str) -> str:
    return version.partition("+")[0]
