"""The keywords of the operations that reduce, in groups: who answers, how many at once, what.

ctk.minify("net.py", target="inductor", jobs=4, slower_than=1.5)
                     AskOptions         Jobs    Choice
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

from ctk.compiler.options.choices import SameRule
from ctk.toolkit.oracle.choice import NOTHING_CHOSEN, Choice, OracleKeywords, choice_of
from ctk.toolkit.oracle.executors.base import ONE_JOB, JobKeywords, Jobs, jobs_of
from ctk.toolkit.oracle.several import AskOptions


class ReduceOptions(AskOptions, JobKeywords, total=False):
    """The keywords of a reduction, beside those of every question.

    `jobs` candidates are asked about at the same time, each in a child process, with the same
    result as one after the other (0: one per core); `executor` says where (`local`, or `ray`: on
    the machines of a cluster), `resources` what one question takes there.

    `same_failure` says what makes two failures the same: `strict` (their words, too), `type` (kind
    and exception type alone), `any`; None: kind, exception type and raising place.
    """

    same_failure: SameRule | None


class MinifyOptions(ReduceOptions, OracleKeywords, total=False):
    """Those that ask another question than whether it compiles wrongly, one of them at a time.

    `oracle`: a function (or its name, `FILE.py:NAME`) that takes a case of its own and returns True
    or a `Verdict`. `command`: a program; exit code 0 is no failure, 125 cannot tell, another one
    the failure; `{case}` and `{repro}` in it are a folder and a script of the candidate; with
    `match` its output decides. `slower_than`, `memory_above`: how many times eager's time, or
    memory at its peak, the compiled call takes.
    """


@dataclass(frozen=True, slots=True)
class Given:
    """The keywords, sorted.

    Attributes:
        options: Who answers, and about what.
        jobs: How many questions at once, and where.
        choice: Which question.
    """

    options: AskOptions
    jobs: Jobs = ONE_JOB
    choice: Choice = NOTHING_CHOSEN


def sorted_keywords(given: Mapping[str, object]) -> Given:
    """Return keywords in their groups; unknown ones stay with the options, which refuse them.

    Raises:
        ConfigError: A value makes no sense.
    """
    left: dict[str, Any] = dict(given)
    jobs = {name: left.pop(name) for name in JobKeywords.__annotations__ if name in left}
    names = (*OracleKeywords.__annotations__, "same_failure")
    chosen = {name: left.pop(name) for name in names if name in left}
    at_once = jobs_of(jobs.get("jobs", 1), jobs.get("executor", "local"), jobs.get("resources"))
    return Given(cast("AskOptions", left), at_once, choice_of(**chosen))
