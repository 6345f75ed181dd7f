"""Explain why Dynamo captured no graph of a program: the reason, and the line of the program."""

from pathlib import Path

import torch

from ctk.compiler.torch_compat.dynamo.capture_reasons import (
    Collected,
    Reason,
    definition,
    is_error_suppressed,
    switched_off_by,
)

SHOWN = 3
"""How many reasons are returned."""

HINT = "log Dynamo's decisions: TORCH_LOGS=dynamo,graph_breaks"


def explain_no_graph(found: Collected, model: object = None) -> tuple[str, ...]:
    """Return why Dynamo captured no graph, in sentences, the most specific first.

    Cases: 1. Dynamo is switched off; 2. it gave up or skipped frames: its reasons, with the line;
    3. it traced frames without an operation on tensors; 4. it was given no frame.

    Args:
        model: The compiled object, if known: its line stands in for lines inside of torch.
    """
    known = definition(model) if model is not None else Reason("")
    if switched_off_by():
        return (f"Dynamo is switched off by {switched_off_by()}",)
    if found.reasons:
        told = [
            _format_reason(reason, known) for reason in found.reasons if not reason.is_in_library
        ]
        told = told or [_format_reason(reason, known) for reason in found.reasons]
        if is_error_suppressed():
            told[0] += " (torch._dynamo.config.suppress_errors hides the error)"
        return tuple(dict.fromkeys(told))[:SHOWN]
    taken = next((each for each in found.traced if each.file), known)
    if found.traced:
        return (f"Dynamo met no operation on tensors{_format_place(taken)}",)
    return (f"Dynamo was given no Python function of the program{_format_place(known)}",)


def is_scripted(model: object) -> bool:
    """Return whether a model was compiled by torch.jit already, which Dynamo does not enter."""
    return isinstance(model, torch.jit.ScriptModule | torch.jit.ScriptFunction)


def find_scripted_line(path: Path) -> str:
    """Return `FILE:LINE` of the first line of a program that names torch.jit, else the file."""
    lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    scripted_line = (number for number, line in enumerate(lines, 1) if "jit." in line)
    return f"{path}:{next(scripted_line, 1)}"


def _format_reason(reason: Reason, known: Reason) -> str:
    place = reason.place or known.place
    return f"{place}: {reason.text}" if place else reason.text


def _format_place(place: Reason) -> str:
    return f" ({place.place})" if place.file else ""
