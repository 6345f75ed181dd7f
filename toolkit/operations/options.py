"""The options of each operation, beside those of every question (toolkit/options.py).

    ctk.minify("net.py", target="inductor", timeout_seconds=60, jobs=4, slower_than=1.5)
                         CaseOptions        AskOptions          Reduce  Minify

Imports no torch.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from ctk.compiler.errors import ConfigError
from ctk.compiler.options.choices import ExecutorName, InputsMode, SameRule
from ctk.toolkit.options import AskOptions, Flag, parse_resources, tuple_of
from ctk.toolkit.oracle.progress import Say, silent

if TYPE_CHECKING:
    from ctk.toolkit.case.case import Case
    from ctk.toolkit.reduce.progress import Progress


def _out(default: str) -> Flag:
    return Flag(
        ("--out", "-o"),
        f"Folder to write to (default: {default}).",
        metavar="DIR",
        section="output",
        typed=Path | None,
    )


KeptInputs = Annotated[
    InputsMode,
    Flag(
        ("--inputs",),
        "The part of its inputs that a written case keeps: a recipe for similar ones, values, "
        "nothing.",
        section="output",
    ),
]


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckOptions(AskOptions):
    """The options of `check`.

    Attributes:
        history: Measure the change that each step makes to the error of each value.
        out: Folder for each graph as a case, healthy ones too; None writes nothing.
        keep: The part of the inputs that a written case keeps.
        say: Progress callback.
    """

    history: Annotated[
        bool,
        Flag(
            ("--history",),
            "Show the change of each step to the error of each value, also within tolerance.",
            section="report",
        ),
    ] = False
    out: Annotated[str | Path | None, _out("nothing is written")] = None
    keep: KeptInputs = "full"
    say: Say = silent


@dataclass(frozen=True, slots=True, kw_only=True)
class ReproOptions(AskOptions):
    """The options of `repro`.

    Attributes:
        out: Folder for the failing graphs; None writes nothing.
        keep: The part of the inputs that a written case keeps.
        say: Progress callback.
    """

    out: Annotated[str | Path | None, _out("nothing is written")] = None
    keep: KeptInputs = "full"
    say: Say = silent


@dataclass(frozen=True, slots=True, kw_only=True)
class BisectOptions(AskOptions):
    """The options of an operation that owns a folder.

    Attributes:
        out: Folder to write to; None makes one here, named after the subject.
        resume: Continue in the folder of an earlier run, and repeat no question.
        say: Progress callback.
    """

    out: Annotated[str | Path | None, _out("a new one here, named after CASE")] = None
    resume: Annotated[
        bool,
        Flag(
            ("--resume",),
            "Go on in DIR, where the same command was ended, and ask nothing again (default: "
            "in the newest folder of CASE here).",
            section="output",
        ),
    ] = False
    say: Say = silent


_CLAUSE = r"(?:~=|===?|!=|<=?|>=?)\s*[\w.*+!-]+"
_REQUIREMENT = re.compile(
    r"\s*[a-z0-9](?:[\w.-]*[a-z0-9])?\s*(?:\[[\w\s,.-]*\])?\s*"
    rf"(?:@\s*\S.*|\(?{_CLAUSE}(?:\s*,\s*{_CLAUSE})*\s*\)?)?\s*(?:;.*)?",
    re.ASCII | re.IGNORECASE,
)
_FILE = re.compile(r"\.(?!-)|.*/|.*\.whl$")


def _parse_versions(text: str | None) -> tuple[str, ...]:
    versions = tuple(each.strip() for each in (text or "").split(",") if each.strip())
    if text is not None and not versions:
        raise ConfigError(f"--releases {text!r} names no release, such as 2.14.0,2.15.0")
    return versions


def _parse_packages(texts: Sequence[str] | None) -> tuple[str, ...]:
    """Return requirements of pip: `numpy`, `numpy>=2`, a file, a folder, a URL."""
    for text in texts or ():
        is_file = _FILE.match(text) and not text.startswith("-")
        if not is_file and not _REQUIREMENT.fullmatch(text):
            raise ConfigError(
                f"--with {text!r} is not a requirement of pip, such as numpy or 'numpy>=2'"
            )
    return tuple(texts or ())


@dataclass(frozen=True, slots=True, kw_only=True)
class VersionOptions(BisectOptions):
    """The options of `bisect_version`.

    Attributes:
        target: None for the case's own, and `inductor` for a program.
        good: A release that passes: a bound of the range.
        bad: A release that fails: the other bound. If it is older than `good`, the search is for
            the first good release.
        good_after: Search for the first good release, after the failure was repaired.
        releases: Ask these releases only.
        every: Ask each release of the range.
        of_triton: Search the releases of Triton, with one release of torch.
        torch: That release of torch; None for the newest.
        index: The only place of packages: the URL of an index, or a folder of wheels. Empty: the
            configuration of pip decides.
        packages: Requirements of pip that the environments have besides torch.
        pythons: Installed interpreters to ask, in place of releases.
        jobs: Releases that are installed and asked at the same time.
        keep: Whether environments stay on disk for the next search.
    """

    target: Annotated[
        str | None,
        Flag(
            ("--target", "-t"),
            "A target that is part of torch; another one takes --with or --python (default: the "
            "case's own; inductor for FILE.py).",
            metavar="TARGET",
        ),
    ] = None
    good: Annotated[
        str | None,
        Flag(
            ("--good",),
            "A release that passes: one end of the range (default: the oldest that ctk supports).",
            metavar="VERSION",
            section="question",
        ),
    ] = None
    bad: Annotated[
        str | None,
        Flag(
            ("--bad",),
            "A release that fails: the other end (default: the newest; for a case or an emitted "
            "script, the release with which it failed).",
            metavar="VERSION",
            section="question",
        ),
    ] = None
    good_after: Annotated[
        bool,
        Flag(
            ("--good-after",),
            "Search for the first good release of a failure that was repaired (also if --good is "
            "newer than --bad).",
            section="question",
        ),
    ] = False
    releases: Annotated[
        Sequence[str],
        Flag(
            ("--releases",),
            "Ask these releases only, with commas between them.",
            metavar="VERSIONS",
            section="question",
            typed=str | None,
            parse=_parse_versions,
        ),
    ] = ()
    every: Annotated[
        bool,
        Flag(("--all",), "Ask each release of the range, for the whole table.", section="question"),
    ] = False
    of_triton: Annotated[
        bool,
        Flag(
            ("--triton",),
            "Search the releases of Triton, with one torch (--torch).",
            section="question",
        ),
    ] = False
    torch: Annotated[
        str | None,
        Flag(
            ("--torch",),
            "The torch of --triton (default: the newest).",
            metavar="VERSION",
            section="question",
        ),
    ] = None
    index: Annotated[
        str,
        Flag(
            ("--index",),
            "The only place of packages, nightly ones included: the URL of an index, or a folder "
            "of wheels (default: the configuration of pip decides).",
            metavar="URL",
            section="question",
        ),
    ] = ""
    packages: Annotated[
        Sequence[str],
        Flag(
            ("--with",),
            "A further package of the environments, such as numpy (repeatable; default: numpy if "
            "the script imports it).",
            metavar="REQUIREMENT",
            section="question",
            typed=list[str] | None,
            parse=_parse_packages,
        ),
    ] = ()
    pythons: Annotated[
        Sequence[str],
        Flag(
            ("--python",),
            "Ask installed interpreters, at least two, and install nothing (repeatable).",
            metavar="PATH",
            section="question",
            typed=list[str] | None,
            parse=tuple_of,
        ),
    ] = ()
    jobs: Annotated[
        int,
        Flag(
            ("--jobs", "-j"),
            "How many releases are installed and asked at once; the result is the same.",
            metavar="N",
            minimum=1,
            section="jobs",
        ),
    ] = 1
    keep: Annotated[
        bool,
        Flag(
            ("--keep/--clean",),
            "Keep the environments for the next search, or remove each that this one makes as "
            "soon as it is not needed. --clean without CASE removes all that were kept.",
            section="output",
        ),
    ] = True


@dataclass(frozen=True, slots=True, kw_only=True)
class ReduceOptions(BisectOptions):
    """The options of a reduction.

    Attributes:
        keep: The part of the inputs that written cases keep.
        max_questions: Most questions of the reduction.
        max_seconds: Longest that the reduction may take.
        on_progress: Called after each question of the reduction.
        jobs: Candidates judged at the same time, each in a child process, with the same result as
            one after the other; 0: one per core.
        executor: `local`, or `ray`: on the machines of a cluster.
        resources: The amounts that one question takes of the cluster, by name.
        same_failure: The rule for equal failures: `strict` (also the message), `type` (kind and
            exception type alone), `any`; None: kind, exception type and raising place.
    """

    keep: KeptInputs = "full"
    max_questions: Annotated[
        int | None,
        Flag(
            ("--max-questions",),
            "Stop reducing after so many questions to the oracle.",
            metavar="N",
            minimum=1,
            section="output",
        ),
    ] = None
    max_seconds: Annotated[
        float | None,
        Flag(
            ("--max-seconds",),
            "Stop reducing after so long.",
            metavar="SECONDS",
            minimum=0.1,
            section="output",
        ),
    ] = None
    on_progress: "Callable[[Progress], None] | None" = None
    jobs: Annotated[
        int,
        Flag(
            ("--jobs", "-j"),
            "How many candidates are asked about at once, each in a child process; the result "
            "is the same (0: one per core).",
            metavar="N",
            minimum=0,
            section="jobs",
        ),
    ] = 1
    executor: Annotated[
        ExecutorName,
        Flag(
            ("--executor",),
            "Where: on this machine, or on a Ray cluster (pip install 'ctk[ray]').",
            section="jobs",
        ),
    ] = "local"
    resources: Annotated[
        Mapping[str, float] | None,
        Flag(
            ("--resources",),
            "The share of the cluster for one question, such as CPU=1,GPU=0.5.",
            metavar="NAME=N",
            section="jobs",
            typed=list[str] | None,
            parse=parse_resources,
        ),
    ] = None
    same_failure: Annotated[
        SameRule | None,
        Flag(
            ("--same-failure",),
            "The rule for equal failures: also the message (numbers apart); kind and "
            "exception type alone; any failure (default: kind, exception type, raising place). "
            "Others that are met are kept in DIR/others.",
            section="failure",
        ),
    ] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DiagnoseOptions(ReduceOptions):
    """The options of `diagnose`.

    Attributes:
        thorough: Search to the end; else `diagnose` takes at most three times as long as the first
            compile, and lists the parts that are left. `max_questions` and `max_seconds` replace
            that limit.
    """

    thorough: Annotated[
        bool,
        Flag(
            ("--thorough",),
            "Simplify sizes, values, numbers and settings as far as possible (default: until "
            "three times the time of the first compile is over).",
            section="output",
        ),
    ] = False


@dataclass(frozen=True, slots=True, kw_only=True)
class MinifyOptions(ReduceOptions):
    """The options of `minify`: at most one of these asks another question than a wrong compile.

    Attributes:
        command: A program decides: exit code 0 means no failure, 125 cannot tell, another one the
            failure; `{case}` and `{repro}` in it are a folder and a script of the candidate.
        match: A regular expression for the output of `command`: a match is the failure.
        oracle: A function decides (or its name, `FILE.py:NAME`): it takes a private case and
            returns True, False or a `Verdict`.
        slower_than: Least time of the compiled call, as a multiple of eager's.
        memory_above: Least peak memory of the compiled call, as a multiple of eager's.
    """

    command: Annotated[
        str | Sequence[str] | None,
        Flag(
            ("--command",),
            "A program decides, as shell words in quotes: exit code 0 means no failure, 125 "
            "cannot tell, another one the failure. {case} in it is a folder, {repro} a script.",
            metavar="CMD",
            section="question",
            typed=str | None,
        ),
    ] = None
    match: Annotated[
        str | None,
        Flag(
            ("--match",),
            "The output of CMD decides: a match is the failure.",
            metavar="REGEX",
            section="question",
        ),
    ] = None
    oracle: Annotated[
        "Callable[[Case], object] | str | None",
        Flag(
            ("--oracle",),
            "A function decides (or MODULE:NAME): it takes a case and returns True for the "
            "failure.",
            metavar="FILE.py:NAME",
            section="question",
            typed=str | None,
        ),
    ] = None
    slower_than: Annotated[
        float | str | None,
        Flag(
            ("--slower-than",),
            "The compiled call takes so many times as long as eager's, such as 1.5x.",
            metavar="FACTOR",
            section="question",
            typed=str | None,
        ),
    ] = None
    memory_above: Annotated[
        float | str | None,
        Flag(
            ("--memory-above",),
            "The compiled call takes so many times as much memory as eager's, at its peak.",
            metavar="FACTOR",
            section="question",
            typed=str | None,
        ),
    ] = None
