"""Play both sides of a program, each in a process of its own, and say whether they differ.

A process of its own, because a program may change its globals, end its process or hang. Asked only
when needed: eager once more and with another seed (random numbers, races), and in float64.

What it does not do: say why they differ.
"""

import os
import signal
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from ctk.repro_templates.compare import compare_values
from ctk.repro_templates.exceptions import Raised, alike
from ctk.repro_templates.layout import stride_mismatch
from ctk.repro_templates.program_play import How
from ctk.repro_templates.program_values import read_values, write_values

Values = Mapping[str, Any]
"""What one side gave; `died` instead: how its process ended."""

Side = Callable[[bool, How], Values]
"""Plays eager (False) or compiled (True)."""

NUMERIC = ("accuracy", "nan")
DEFAULTS: How = {
    "calls": 1, "backward": False, "seed": 0, "wide": False, "fresh": False, "strides": False,
}  # fmt: skip
KINDS = {"structure": "structure", "alias": "alias", "requires_grad": "requires-grad"}


@dataclass(frozen=True, slots=True)
class Difference:
    """A result that differs.

    Attributes:
        kind: As of a failure (`accuracy`, `state`, `missing-error`, ...).
        name: The result: `call2.out0`.
        detail: For people.
        exception: Type of the exception that the compiled side raised, or that only eager raises.
    """

    kind: str
    name: str
    detail: str
    exception: str | None = None


class Unanswered(Exception):
    """The question has no answer; its text says why. `is_flaky`: the program is not repeatable."""

    is_flaky = False


def find_differences(side: Side, how: How) -> list[Difference]:
    """Return how the compiled side differs from eager; nothing when they agree.

    Raises:
        Unanswered: Eager does not come to its end, or gives other numbers each time.
    """
    eager = side(False, how)
    if "died" in eager:
        raise Unanswered(f"eager itself ends: {eager['died']}")
    compiled = side(True, how)
    if "died" in compiled:
        return [died(compiled["died"])]
    found = differences(eager, compiled, {}, how)
    if not any(each.kind in NUMERIC for each in found):
        return found
    wide = side(False, {**how, "wide": True})
    if "died" in wide or any(name.endswith(".error") for name in wide):
        wide = {}
    wide = {name: value for name, value in wide.items() if is_near(eager.get(name), value)}
    found = differences(eager, compiled, wide, how)
    again = differences(eager, side(False, how), {}, how)
    if again:
        flaky = Unanswered(f"two eager runs differ at {again[0].name}: {again[0].detail}")
        flaky.is_flaky = True
        raise flaky
    if any(value for name, value in eager.items() if name.endswith(".random")):
        other = side(False, {**how, "seed": how["seed"] + 1})
        steady = {name for name in eager if is_same(eager[name], other.get(name))}
        found = [each for each in found if each.kind not in NUMERIC or each.name in steady]
    return found


def differences(eager: Values, compiled: Values, wide: Values, how: How) -> list[Difference]:
    """Return each result that differs, in the order of the program."""
    found: list[Difference] = []
    for name in in_order(eager, compiled):
        short = name.partition(".")[2]
        if short in ("", "random"):  # about the run, not of the program
            continue
        if short == "error":
            found += error_difference(name, eager.get(name), compiled.get(name))
            if (name in eager) != (name in compiled):
                break  # what came after it on one side has nothing beside it on the other
        elif name not in eager or name not in compiled:
            where = "compiled" if name in eager else "eager"
            kind = "state" if short.startswith("state:") else "structure"
            found.append(Difference(kind, name, f"{where} has no such value"))
        else:
            found += value_difference(name, eager[name], compiled[name], wide.get(name), how)
    return found


def in_order(eager: Values, compiled: Values) -> list[str]:
    """Return the names of both sides, call after call; of a call the exception comes first."""
    names = list(dict.fromkeys([*eager, *compiled]))
    calls = list(dict.fromkeys(name.partition(".")[0] for name in names))

    def place(name: str) -> tuple[int, bool]:
        call, _, short = name.partition(".")
        return calls.index(call), short != "error"

    return sorted(names, key=place)


def value_difference(name: str, eager: Any, compiled: Any, wide: Any, how: How) -> list[Difference]:
    """Return how one value differs, if it does."""
    short = name.partition(".")[2]
    strides = how["strides"] and short.startswith("out")
    try:
        seen = compare_values(name, eager, compiled, wide)
        seen = seen or (stride_mismatch(name, eager, compiled) if strides else None)
    except RuntimeError as error:  # a kind of tensor that cannot be compared
        return [Difference("structure", name, str(error))]
    if seen is None:
        return []
    kind = KINDS.get(short, "state" if short.startswith("state:") else seen.kind)
    detail = seen.detail
    if isinstance(eager, str) and isinstance(compiled, str):
        detail = f"{compiled!r}, eager gives {eager!r}"
    return [Difference(kind, name, detail)]


def error_difference(name: str, eager: Any, compiled: Any) -> list[Difference]:
    """Return how the exceptions of a call differ: those that are `alike` are one outcome."""
    wanted = Raised(*eager) if eager is not None else None
    seen = Raised(*compiled) if compiled is not None else None
    if seen is None:
        lost = wanted.name if wanted is not None else None
        return [Difference("missing-error", name, f"none, eager raises {wanted}", lost)]
    if wanted is None:
        return [Difference("runtime-error", name, str(seen), seen.name)]
    if alike(wanted, seen):
        return []
    return [Difference("other-error", name, f"{seen}, eager raises {wanted}", seen.name)]


def is_near(eager: Any, wide: Any) -> bool:
    """Return whether a float64 value can be the reference: a program may draw other numbers."""
    if not isinstance(eager, torch.Tensor) or not isinstance(wide, torch.Tensor):
        return False
    if eager.shape != wide.shape or not eager.is_floating_point() or not eager.numel():
        return False
    own, exact = (each.double().nan_to_num(0.0, 0.0, 0.0) for each in (eager, wide))
    return bool((own - exact).norm() <= 0.1 * exact.norm())


def died(end: str) -> Difference:
    """Return the difference for a compiled side that did not come to its end."""
    kind, _, rest = end.partition(" ")
    return Difference(kind, "the compiled program", rest)


def is_same(one: Any, other: Any) -> bool:
    """Return whether two values are equal bit for bit."""
    if isinstance(one, torch.Tensor) and isinstance(other, torch.Tensor):
        return one.dtype == other.dtype and torch.equal(one, other)
    return type(one) is type(other) and not isinstance(one, torch.Tensor) and one == other


def in_own_process(
    work: Callable[[], Values],
    timeout_seconds: float,
    holds_too_much: Callable[[int], bool] = lambda pid: False,
) -> Values:
    """Do some work in a forked process and return what it gave, or how it ended.

    Args:
        work: What is done.
        timeout_seconds: With more it is killed.
        holds_too_much: Whether a process holds more memory than it may: it is killed too.
    """
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "values"
        pid = os.fork()
        if pid == 0:
            status = 1
            try:
                values = work()
                write_values(values, path)
                status = 0
            except BaseException as error:
                path.with_name("why").write_text(f"{type(error).__name__}: {error}")
            finally:
                os._exit(status)
        code = status_of(pid, timeout_seconds, holds_too_much)
        why = path.with_name("why")
        if code == 0:
            return read_values(path)
        if why.is_file():
            return {"died": f"structure {why.read_text()}"}
    if isinstance(code, str):
        return {"died": code}
    return {"died": f"signal {-code}" if code < 0 else f"exit with status {code}"}


def status_of(pid: int, timeout_seconds: float, holds_too_much: Callable[[int], bool]) -> int | str:
    """Wait for a process and return its status, or what it was killed for."""
    deadline = time.monotonic() + timeout_seconds
    pause, why = 0.002, f"timeout not done after {timeout_seconds:g} s"
    while time.monotonic() < deadline:
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        if holds_too_much(pid):
            why = "memory more of it than it may hold"
            break
        time.sleep(pause)
        pause = min(0.05, pause * 1.5)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    return why
