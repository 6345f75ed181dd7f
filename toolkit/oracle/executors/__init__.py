"""Executors of questions: this process, a child that may crash or hang, machines of a cluster.

To add an executor, write one file with an `EXECUTOR` and one line in `EXECUTORS`.
"""

from collections.abc import Iterable

from ctk.compiler.errors import ConfigError
from ctk.toolkit.case.case import Case
from ctk.toolkit.oracle.executors import child, in_process, remote
from ctk.toolkit.oracle.executors.base import ONE_JOB, Executor, ExecutorKind, Jobs, Needs

EXECUTORS: tuple[ExecutorKind, ...] = (
    remote.EXECUTOR,
    child.EXECUTOR,
    in_process.EXECUTOR,
)
"""In order of precedence; the first that serves the needs runs the questions."""

HANG_SECONDS = 60.0
"""Default time limit of a question about a case that records a hang."""


def executor_for(
    cases: Iterable[Case],
    *,
    isolate: bool | None = None,
    timeout_seconds: float | None = None,
    memory_nbytes: int | None = None,
    jobs: Jobs = ONE_JOB,
) -> Executor:
    """Return the executor for questions about some cases, to be used in a `with` block.

    Args:
        isolate: Whether to ask in children; None leaves the choice to the other arguments.
        timeout_seconds: Time limit of one question; needs a child. A case that records a hang
            always has a limit.
        memory_nbytes: Memory limit of one question and its processes; needs a child. None takes
            `CTK_MEMORY`, else most of the free memory.
        jobs: How many questions may run at the same time, and where; several need children.

    Raises:
        ConfigError: A limit, or several jobs, without a child.
    """
    cluster = None if jobs.executor == "local" else jobs.executor
    several = None if jobs.count == 1 else jobs.count
    limits = (("--timeout", timeout_seconds), ("--memory", memory_nbytes))
    for option, value in (*limits, ("--jobs", several), ("--executor", cluster)):
        if isolate is False and value is not None:
            raise ConfigError(
                f"{option} works in a child process only; leave out --no-isolate or {option}"
            )
    signatures = [case.signature for case in cases if case.signature]
    if isolate is not False and any(signature.kind == "timeout" for signature in signatures):
        timeout_seconds = timeout_seconds or HANG_SECONDS
    is_deadly = any(signature.is_deadly for signature in signatures)
    needs = Needs(isolate, timeout_seconds, memory_nbytes, is_deadly, jobs)
    return next(kind for kind in EXECUTORS if kind.serves(needs)).start(needs)
