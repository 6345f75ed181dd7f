"""What a failure does to the running program: the rules of `on_failure`.

* `raise`: the exception, or a `MiscompileError` for wrong values.
* `fallback`: one log line, and from then on the captured graph in eager.
* `warn`: a Python warning; eager after an exception, the compiled result for wrong values.

A failing call may have written half of its results into its inputs. For the first call they are put
back before eager takes over (which costs one clone of the inputs, weights included); later calls
raise in every mode.
"""

import logging
import warnings
from collections.abc import Sequence

import torch

from ctk.compiler.choices import OnFailure
from ctk.compiler.errors import MiscompileError
from ctk.compiler.fx.clone import clone_inputs
from ctk.compiler.observe import first_line
from ctk.toolkit.case.case import Case
from ctk.toolkit.watch.dump import guarded
from ctk.toolkit.watch.session import WatchOptions

logger = logging.getLogger("ctk")


def tell_fallback(on_failure: OnFailure, case: Case, error: BaseException, *, while_: str) -> None:
    """Say that eager takes over after an exception."""
    text = (
        f"ctk: {case.name} runs in eager from now on: "
        f"{case.target} raised {type(error).__name__} {while_}: {first_line(error)}"
    )
    if on_failure == "warn":
        warnings.warn(text, RuntimeWarning, stacklevel=2)
    else:
        logger.warning("%s", text)


def after_failed_check(
    on_failure: OnFailure, case: Case, announced: str, error: BaseException | None
) -> bool:
    """Do what `on_failure` says of a failed check; return whether eager takes over.

    Args:
        on_failure: What to do.
        case: The graph.
        announced: What was said of the failure.
        error: The exception of the compiled graph; None for wrong values.

    Raises:
        MiscompileError: Wrong values, with `raise`.
        BaseException: `error`, likewise.
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


def spare_inputs(
    options: WatchOptions, args: tuple[object, ...], name: str
) -> tuple[object, ...] | None:
    """Return clones of a graph's inputs if the options need them, and if these can be cloned."""
    if options.check == "off" and options.on_failure == "raise":
        return None
    clones: list[tuple[object, ...]] = []
    guarded(
        lambda: clones.append(clone_inputs(args)),
        f"cloning the inputs of {name} (no check, no fallback)",
    )
    return clones[0] if clones else None


def restored(tensors: Sequence[object], spare: Sequence[object]) -> bool:
    """Write the saved values back into the tensors that changed, and return whether that worked."""

    def restore() -> None:
        for tensor, saved in zip(tensors, spare, strict=True):
            if not (isinstance(tensor, torch.Tensor) and isinstance(saved, torch.Tensor)):
                continue
            if not torch.equal(tensor, saved):
                tensor.copy_(saved)

    with torch.no_grad():
        return guarded(restore, "putting the inputs back (no fallback)")
