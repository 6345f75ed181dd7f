"""bisect_version: the release of torch or Triton at which a failure begins, or ends."""

import itertools
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from ctk.compiler.errors import ConfigError
from ctk.compiler.posix import require_posix
from ctk.toolkit.operations.options import VersionOptions
from ctk.toolkit.operations.session.version_bisection import (
    JournaledAsker,
    OpenSearch,
    open_search,
)
from ctk.toolkit.operations.versions.questions import (
    Asker,
    Progress,
    VersionAnswer,
    VersionQuestion,
)
from ctk.toolkit.operations.versions.release_choice import (
    choose_releases,
    find_release,
    is_reversed,
)
from ctk.toolkit.operations.versions.version_search import (
    AskedRelease,
    VersionReport,
    check_triton,
    search_releases,
)
from ctk.toolkit.oracle.progress import Say
from ctk.toolkit.releases.environments import (
    Environments,
    Removal,
    environment_folders,
    open_root,
    remove_environments,
)
from ctk.toolkit.releases.interpreters import find_interpreter, read_versions
from ctk.toolkit.releases.pip_commands import PackageSource, Release, list_releases, open_source
from ctk.toolkit.releases.script_runs import SECONDS

_NEEDS_POSIX = "bisect-version, which installs environments,"


def bisect_version(subject: str, options: VersionOptions) -> VersionReport:
    """Find the first bad release, or with `good_after` the first good one.

    Args:
        subject: A script, a program or a case, by name.

    Raises:
        InstallError: pip cannot list the releases.
        StorageError: The disk has too little space for an environment.
    """
    started = time.monotonic()
    check_options(options)
    with open_search(subject, options) as search:
        report = _ask_interpreters(search) if options.pythons else _search(search)
    return replace(report, seconds=time.monotonic() - started)


def remove_all(say: Say) -> tuple[Path, Removal]:
    """Remove all environments that were kept; return their folder and the result."""
    require_posix(_NEEDS_POSIX)
    root = open_root()
    return root, remove_environments(environment_folders(root), say)


def check_options(options: VersionOptions) -> None:
    """Refuse options that exclude each other.

    Raises:
        ConfigError: They do.
        UnsupportedPlatform: On Windows.
    """
    require_posix(_NEEDS_POSIX)
    is_range = options.good is not None or options.bad is not None
    if options.releases and is_range:
        raise ConfigError("--releases names each release; it goes without --good and --bad")
    if options.torch is not None and not options.of_triton:
        raise ConfigError("--torch is the torch of --triton; for releases of torch: --releases")
    if len(options.pythons) == 1:
        raise ConfigError(
            "--python names interpreters to compare; give at least two, one --python for each"
        )
    of_releases = is_range or options.releases or options.index or options.of_triton
    if options.pythons and (of_releases or options.packages):
        raise ConfigError(
            "--python asks installed interpreters; it goes without --good, --bad, --releases, "
            "--index, --triton and --with"
        )
    if options.memory_nbytes is not None:
        raise ConfigError("--memory limits no script in a release; next: ulimit -v before ctk")
    is_reversed(options)


def _ask_interpreters(search: OpenSearch) -> VersionReport:
    """Ask installed interpreters, in the order of the user."""
    options, say = search.options, Progress(search.options.say)
    questions: list[VersionQuestion] = []
    for text in options.pythons:
        interpreter = find_interpreter(text)
        say(f"read the versions of {interpreter.python}")
        versions = read_versions(interpreter, options.timeout_seconds)
        torch = Release(versions.torch or "none")
        questions.append(VersionQuestion(torch, versions.triton, interpreter))
    if len(set(questions)) < len(questions):
        raise ConfigError("--python names the same interpreter twice")
    environments = Environments(search.folder, open_source(), (), say)
    asker = _asker(search, environments, say)
    answers, _, _ = search_releases(
        questions, asker.ask, is_reversed=options.good_after, every=True, jobs=options.jobs
    )
    rows = [
        AskedRelease(each.torch, answers[each], str(each.interpreter and each.interpreter.python))
        for each in questions
    ]
    return VersionReport(
        package="torch",
        releases=tuple(rows),
        before=None,
        after=None,
        is_reversed=options.good_after,
        folder=search.folder,
        script=search.script,
        questions=asker.asked,
    )


def _search(search: OpenSearch) -> VersionReport:
    """Ask environments of releases."""
    options, say = search.options, Progress(search.options.say)
    source = open_source(options.index)
    environments = Environments(open_root(), source, tuple(options.packages), say)
    package = "triton" if options.of_triton else "torch"
    choice = choose_releases(package, options, source, search.script)
    torch = _torch_of_triton(options, source) if options.of_triton else None
    questions = [
        VersionQuestion(torch, f"triton=={each.version}") if torch else VersionQuestion(each)
        for each in choice.releases
    ]
    asker = _asker(search, environments, say)
    answered: dict[VersionQuestion, VersionAnswer] = {}

    def ask(batch: Sequence[VersionQuestion]) -> Mapping[VersionQuestion, VersionAnswer]:
        found = asker.ask(batch)
        answered.update(found)
        if not options.keep and torch is None:
            environments.remove_made(spare=_needed(questions, answered))
        return found

    try:
        answers, before, after = search_releases(
            questions, ask, is_reversed=choice.is_reversed, every=options.every, jobs=options.jobs
        )
        rows = zip(choice.releases, questions, strict=True)
        report = VersionReport(
            package=package,
            releases=tuple(AskedRelease(release, answers.get(each)) for release, each in rows),
            before=before,
            after=after,
            is_reversed=choice.is_reversed,
            torch=torch.version if torch else "",
            folder=search.folder,
            script=search.script,
            root=environments.root,
        )
        report = check_triton(report, asker.ask)
    finally:
        if not options.keep:
            environments.remove_made()
    removed = None if options.keep else environments.removed
    return replace(report, removed=removed, questions=asker.asked)


def _asker(search: OpenSearch, environments: Environments, say: Say) -> JournaledAsker:
    seconds = search.options.timeout_seconds or SECONDS
    return JournaledAsker(search, Asker(search.script, environments, seconds), say)


def _torch_of_triton(options: VersionOptions, source: PackageSource) -> Release:
    if options.torch is None:
        return list_releases("torch", source)[-1]
    return find_release(options.torch, list_releases("torch", source), "torch")


def _needed(
    questions: Sequence[VersionQuestion], answered: Mapping[VersionQuestion, VersionAnswer]
) -> list[str]:
    """Return the releases around the change so far, which a search may need again."""
    seen = [(each.torch.version, answered[each].is_bad) for each in questions if each in answered]
    sure = [(version, bad) for version, bad in seen if bad is not None]
    pairs = itertools.pairwise(sure)
    return [each[0] for pair in pairs if pair[0][1] != pair[1][1] for each in pair] or [
        version for version, _ in sure[-1:]
    ]
