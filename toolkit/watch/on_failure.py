"""The effect of a failure on the running program: the rules of `on_failure`.

* `raise`: the exception, or a `MiscompileError` for wrong values.
* `fallback`: one log line, and from then on the captured graph in eager.
* `warn`: a Python warning; eager after an exception, the compiled result for wrong values.

A failing call may have written half of its results into its inputs and into the state of the graph,
and may have drawn random numbers. For the first call this is undone before eager takes over
(watch/state_copy.py, which costs one copy, weights included); later calls raise in every mode.
"""

import logging
import warnings

from ctk.compiler.errors import MiscompileError
from ctk.compiler.observe import first_line
from ctk.compiler.options.choices import OnFailure
from ctk.toolkit.case.case import Case

logger = logging.getLogger("ctk")


def report_fallback(
    on_failure: OnFailure, case: Case, error: BaseException, *, while_: str
) -> None:
    """Warn, or log, that eager takes over after an exception."""
    text = (
        f"ctk: {case.name} runs in eager from now on: "
        f"{case.target} raised {type(error).__name__} {while_}: {first_line(error)}"
    )
    if on_failure == "warn":
        warnings.warn(text, RuntimeWarning, stacklevel=2)
    else:
        logger.warning("%s", text)


def apply_on_failure(
    on_failure: OnFailure, case: Case, announced: str, error: BaseException | None
) -> bool:
    """Apply `on_failure` to a failed check; return whether eager takes over.

    Args:
        on_failure: The rule.
        case: The graph.
        announced: The announcement of the failure.
        error: The exception of the compiled graph; None for wrong values.

    Raises:
        MiscompileError: Wrong values, with `raise`.
        BaseException: `error`, with `raise`.
    """
    match on_failure:
        case "raise":
            raise error or MiscompileError(announced)
        case "fallback":
            logger.warning("ctk: %s runs in eager from now on", case.name)
            return True
        case "warn":
            instead = "eager" if error is not None else "the compiled results"
            message = f"{announced.splitlines()[0]} (the program gets {instead})"
            warnings.warn(message, RuntimeWarning, stacklevel=2)
            return error is not None
