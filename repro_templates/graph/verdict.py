"""The main program of a repro: run the program in eager and compiled, and print the verdict.

Exit code 0: no failure; 1: a failure, the expected one or another; 125: cannot tell.
"""

import contextlib
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch

from ctk.compiler.observe import first_line
from ctk.repro_templates.graph.exceptions import Raised, alike, describe_error, is_missing, unwrap
from ctk.repro_templates.graph.excuses import Variation, varied
from ctk.repro_templates.graph.judging import EXCUSES, judge_runs
from ctk.repro_templates.graph.loading import CannotTell, Excused, require
from ctk.repro_templates.graph.running import Modes, Run, State, in_float64, run_once, under
from ctk.repro_templates.numbers.float64 import widen, wider
from ctk.repro_templates.numbers.layout import layout_kinds

ERRORS = ("compile-error", "runtime-error")
OUTCOMES = ("missing-error", "other-error")
"""Failures of a program that raises in eager: its exception is its result."""
DEADLY = ("signal", "exit", "timeout", "memory")
"""Failures that a child process shows."""
MEASURED = ("slow", "peak-memory", "slow-compile")
"""Failures that only measuring shows."""
AGREES = "the compiled program agrees with eager"
CHILD = "--child"
POLL_SECONDS = 0.1
CAME_TO_ITS_END = 86
RAISED = 87
"""Exit codes of a child that survived its compiled program."""
UNDECIDED = 88
"""Exit code of a child in which the program cannot be built."""

Failure = tuple[str, str, str]
"""Kind, name of the result or exception, and detail."""


@dataclass(frozen=True, slots=True)
class GraphProgram:
    """The parts in which repros differ.

    Attributes:
        inputs: Builds its inputs, by the names of its placeholders.
        expected: The failure that the script was written for: kind, exception, signal.
        sizes: Inputs that the program reads off the shapes of others.
        casts: `InFloat64`, if the program names dtypes.
        shares_memory: Whether inputs share memory, which float64 copies would not.
        draws: `same_draws`; None: the program draws no random numbers.
        crash: Runs the compiled program elsewhere first, and returns its failure if it crashes.
        survives: Returns whether the compiled program raises nothing elsewhere: eager breaks the
            GPU for this process.
        guards: Surrounds inputs, and buffers of generated code, with memory of known contents.
        measure: Measures time or memory of both sides, and returns the failure; then results are
            not compared.
    """

    module: Callable[[], torch.nn.Module]
    inputs: Callable[[], dict[str, object]]
    compiled: Callable[[], Callable[..., object]]
    modes: Modes
    expected: Mapping[str, Any]
    sizes: tuple[str, ...] = ()
    states: tuple[State, ...] = ()
    casts: Callable[[], AbstractContextManager[object]] = contextlib.nullcontext
    shares_memory: bool = False
    draws: Callable[..., AbstractContextManager[None]] | None = None
    crash: Callable[[], Failure | None] | None = None
    survives: Callable[[], bool] | None = None
    guards: Callable[[Sequence[object]], AbstractContextManager[None]] | None = None
    measure: Callable[["GraphProgram"], Failure | None] | None = None


def main(program: GraphProgram) -> int:
    """Print the verdict; return the exit code."""
    torch.set_default_dtype(getattr(torch, program.modes["default_dtype"]))
    program = replace(
        program,
        module=partial(require, "the program", program.module),
        inputs=partial(require, "inputs()", program.inputs),
        compiled=partial(require, "the target", program.compiled),
    )
    if CHILD in sys.argv:
        try:
            run(program, program.compiled())
        except CannotTell as reason:
            print(reason, file=sys.stderr)
            return UNDECIDED
        except Exception:  # its exceptions are seen without a child
            return RAISED
        return CAME_TO_ITS_END
    passes = "the compiled program keeps its limit" if program.measure else AGREES
    return report(lambda: failure_text(program), passes)


def report(find: Callable[[], str | None], passes: str) -> int:
    """Print the verdict of a search for a failure; return the exit code."""
    try:
        with contextlib.redirect_stdout(sys.stderr):
            seen = find()
    except CannotTell as reason:
        print(f"CANNOT TELL: {reason}")
        return 125
    except Excused as reason:
        print(f"NO FAILURE: {reason}")
        return 0
    except Exception as error:
        traceback.print_exc()
        print(f"CANNOT TELL: something else fails: {error_line(error)}")
        return 125
    print(f"NO FAILURE: {passes}" if seen is None else f"FAILURE: {seen}")
    return int(seen is not None)


def failure_text(program: GraphProgram) -> str | None:
    """Return the failure of a program for people; None if there is none."""
    failure = find_failure(program)
    if failure is None:
        return None
    kind, name, detail = failure
    at = "" if kind in (*ERRORS, *OUTCOMES, *DEADLY, *MEASURED) else "at "
    seen = f"{kind} {at}{name}: {detail}"
    if is_expected(program.expected, kind, name):
        return seen
    expected = " ".join(str(part) for part in program.expected.values() if part is not None)
    return f"another failure: {seen}; expected {expected}"


def find_failure(program: GraphProgram) -> Failure | None:
    """Run the program in eager and compiled; return its failure."""
    if program.measure:
        return program.measure(program)
    eager, wanted = run_or_error(program)
    if eager is None:
        check_exception(program.expected, wanted)
    if program.crash and (crash := program.crash()):
        return crash
    if eager is None:
        return find_other_outcome(program, wanted)
    try:
        compiled = run(program, program.compiled())
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # also sys.exit, if the compiler calls it
        return describe(error, program.expected)
    finding = judge_runs(
        eager,
        compiled,
        vary=partial(vary_eager, program),
        reference=partial(reference, program, eager),
        layouts=layout_kinds(program.expected["kind"]),
        fakes=None if program.expected["kind"] or program.modes["strides"] else dict,
    )
    if finding.answer == "flaky":
        raise CannotTell(f"flaky: {finding.detail}")
    if finding.answer in EXCUSES:
        raise Excused(f"{finding.answer}: {finding.detail}")
    wanted = [
        mismatch for mismatch in finding.mismatches if mismatch.kind == program.expected["kind"]
    ]
    failure = next(iter(wanted or finding.mismatches), None)
    return (failure.kind, failure.name, failure.detail) if failure else None


def vary_eager(program: GraphProgram, variation: Variation) -> Run:
    """Run the program in eager once more under other conditions."""
    allocated: list[str] = []
    around = varied(variation, allocated)
    found = run(program, program.module(), more=variation.seed, around=around)
    return replace(found, allocated=tuple(allocated))


def run_or_error(program: GraphProgram) -> tuple[Run | None, Raised]:
    """Run the program in eager; its exception is an outcome like its results."""
    try:
        eager = run(program, program.module())
        return eager if eager.is_seeded else run(program, program.module()), Raised("", "")
    except CannotTell:
        raise
    except Exception as error:
        return None, describe_error(error)


def check_exception(expected: Mapping[str, Any], eager: Raised) -> None:
    """Raise `CannotTell` if eager raises for another reason than the program itself.

    The script was written where eager gave results, or raised another exception.
    """
    kind, name = expected["kind"], expected["exception"]
    is_own = kind in (None, *OUTCOMES, *DEADLY)
    is_other = kind == "missing-error" and name not in (None, eager.name)
    if not is_own or is_other or (is_missing(eager) and eager.name != name):
        raise CannotTell(f"eager raises {eager}")


def find_other_outcome(program: GraphProgram, wanted: Raised) -> Failure | None:
    """Return the failure of a program that raises in eager: another exception, or none."""
    if program.survives:  # eager has broken the GPU for this process
        is_missing = program.survives()
        return ("missing-error", wanted.name, missing(wanted)) if is_missing else None
    try:
        run(program, program.compiled())
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # also sys.exit, if the compiler calls it
        seen = describe_error(error)
        if alike(wanted, seen):
            return None
        _, name, detail = describe(error, program.expected)
        return "other-error", name, f"{detail}; eager raises {wanted}"
    again, second = run_or_error(program)
    if again is not None or not alike(wanted, second):
        raise CannotTell(f"flaky: eager raises {wanted}, but not always")
    return "missing-error", wanted.name, missing(wanted)


def missing(wanted: Raised) -> str:
    """Return the text for an exception that only eager raises."""
    return f"{wanted.message}; only eager raises it"


def run(
    program: GraphProgram,
    call: Callable[..., object],
    *,
    more: int = 0,
    wide: bool = False,
    around: AbstractContextManager[None] | None = None,
) -> Run:
    """Run the program once on fresh inputs, the seed raised by `more`; `wide` in float64."""
    values = program.inputs()
    inputs = [widen(value) if wide else value for value in values.values()]
    modes = {**program.modes, "seed": program.modes["seed"] + more}

    program_call = flat_call(program, call, [*values])

    def flat(*given: object) -> object:
        with program.casts() if wide else contextlib.nullcontext():
            return program_call(*given)

    modes = in_float64(modes) if wide else modes
    guards = program.guards(inputs) if program.guards else contextlib.nullcontext()
    with under(modes, program.states), guards:
        return run_once(flat, inputs, modes, program.states, around, held=tensors_of_module(call))


def flat_call(
    program: GraphProgram, call: Callable[..., object], names: Sequence[str]
) -> Callable[..., object]:
    """Return a function of all inputs of a program; some are read off the others."""

    def flat(*given: object) -> object:
        pairs = zip(names, given, strict=True)
        return call(*(value for name, value in pairs if name not in program.sizes))

    return flat


def tensors_of_module(call: Callable[..., object]) -> dict[str, torch.Tensor]:
    """Return the tensors of a module by name, compiled or not."""
    if not isinstance(call, torch.nn.Module):
        return {}
    tensors = (
        *call.named_parameters(remove_duplicate=False),
        *call.named_buffers(remove_duplicate=False),
    )
    return {name.removeprefix("_orig_mod."): tensor for name, tensor in tensors}


def reference(program: GraphProgram, eager: Run) -> tuple[Mapping[str, object] | None, str]:
    """Return the results of the program in float64, or None and why there are none."""
    if program.shares_memory:
        return None, "inputs share memory, which float64 copies would not"
    play = None
    try:
        if eager.drew_random:
            assert program.draws, "the program draws random numbers here, as it did not before"
            play = program.draws(lambda tape: run(program, program.module(), around=tape))
        module = program.module()
        for tensor in (*module.parameters(), *module.buffers()):
            tensor.data = tensor.data.to(wider(tensor.dtype))
        return run(program, module, wide=True, around=play).values, ""
    except Exception as error:
        print(f"no float64 reference, compared with eager itself: {error_line(error)}")
        return None, error_line(error)


def describe(error: BaseException, expected: Mapping[str, Any]) -> Failure:
    """Return the failure for an exception of the compiler or of the compiled program."""
    if isinstance(error, CannotTell):
        raise error
    is_backend = "BackendCompilerFailed" in kinds_of(error)
    error = unwrap(error)[-1]
    name = type(error).__name__
    is_dynamo = "TorchDynamoException" in kinds_of(error) and not is_backend
    if is_dynamo and name != expected["exception"]:
        raise CannotTell(f"Dynamo cannot capture the program again: {error_line(error)}")
    is_refused = is_backend and "ConfigError" in kinds_of(error)  # of ctk: such as a lost pass
    if (is_missing(describe_error(error)) or is_refused) and name != expected["exception"]:
        raise CannotTell(f"something is missing here: {error_line(error)}")
    kind = "compile-error" if is_backend else "runtime-error"
    if expected["kind"] in ERRORS:
        kind = expected["kind"]  # torch.compile compiles at the first call: they look alike
    return kind, name, first_line(error)


def kinds_of(error: BaseException) -> set[str]:
    """Return the names of an exception's classes."""
    return {kind.__name__ for kind in type(error).__mro__}


def error_line(error: BaseException) -> str:
    """Return an exception in one line."""
    return f"{type(error).__name__}: {first_line(error)}"


def crash_of_child(timeout_seconds: float, memory_nbytes: int | None = None) -> Failure | None:
    """Run the compiled program in a child process; return its failure when it dies or hangs."""
    ended = end_of_child(timeout_seconds, memory_nbytes)
    return None if isinstance(ended, int) else ended


def survives_in_child(timeout_seconds: float, memory_nbytes: int | None = None) -> bool:
    """Return whether the compiled program raises nothing in a child process."""
    ended = end_of_child(timeout_seconds, memory_nbytes)
    if ended not in (CAME_TO_ITS_END, RAISED):
        raise CannotTell(f"the compiled program does not end well in a child process: {ended}")
    return ended == CAME_TO_ITS_END


def end_of_child(timeout_seconds: float, memory_nbytes: int | None) -> Failure | int:
    """Run the compiled program in a child process; return its exit code if that means a crash."""
    child = subprocess.Popen([sys.executable, __file__, CHILD], stdout=sys.stderr)
    deadline = time.monotonic() + timeout_seconds
    try:
        while (code := child.poll()) is None:
            if time.monotonic() > deadline:
                return "timeout", "the compiled program", f"not done after {timeout_seconds:g} s"
            if memory_nbytes is not None and held_nbytes(child.pid) > memory_nbytes:
                limit = f"{memory_nbytes >> 20} MiB"
                return "memory", "the compiled program", f"more than {limit}"
            time.sleep(POLL_SECONDS)
    finally:
        child.kill()
        child.wait()
    if code == UNDECIDED:
        raise CannotTell("the program cannot be built in a child process")
    if code < 0:
        return "signal", str(-code), "the compiled program was killed"
    if code not in (CAME_TO_ITS_END, RAISED):
        return "exit", f"with status {code}", "the compiled program ended the process"
    return code


def held_nbytes(pid: int) -> int:
    """Return how much memory a process holds, without files; 0 if the system does not report it."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return 0
    held = (line.split()[1] for line in lines if line.startswith(("RssAnon:", "RssShmem:")))
    return sum(int(kib) << 10 for kib in held)


def is_expected(expected: Mapping[str, Any], kind: str, name: str) -> bool:
    """Return whether this is the failure that the script was written for."""
    if expected["kind"] is None:
        return True
    names = dict.fromkeys((*ERRORS, *OUTCOMES), expected["exception"])
    wanted = {"signal": str(expected["signal"])} | names
    return kind == expected["kind"] and name == wanted.get(kind, name)
