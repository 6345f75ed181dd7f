"""In a repro: failures of time or of memory, which only measuring shows (measuring.py)."""

from collections.abc import Callable, Sequence

import torch

from ctk.repro_templates.graph.compile_time import compile_seconds, is_slow_compile
from ctk.repro_templates.graph.loading import CannotTell
from ctk.repro_templates.graph.measuring import (
    Call,
    Empty,
    Measured,
    extra_memory,
    repeatable,
    slowdown,
    uses_gpu,
)
from ctk.repro_templates.graph.running import under
from ctk.repro_templates.graph.verdict import Failure, GraphProgram, describe, error_line, flat_call


def slow_failure(
    program: GraphProgram, factor: float, empty: Callable[..., Callable[..., object]]
) -> Failure | None:
    """Return the failure of a program whose compiled call is slow; None if it is not.

    Args:
        factor: Least ratio of the times that counts as slow.
        empty: Compiles `Empty()` as the program is compiled.
    """

    def compare(eager: Call, compiled: Call, inputs: Sequence[object]) -> Measured:
        def almost_empty() -> Call | None:
            try:
                return repeatable_of(program, empty(Empty()), inputs)
            except Exception as error:
                print(f"the costs of a call itself are not known: {error_line(error)}")
                return None

        on_gpu = uses_gpu(inputs)
        return slowdown(eager, compiled, factor, almost_empty, on_gpu=on_gpu)

    return find_measured_failure(program, "slow", compare)


def peak_failure(program: GraphProgram, factor: float) -> Failure | None:
    """Return the failure of a program whose compiled call takes much memory; None if not."""

    def compare(eager: Call, compiled: Call, inputs: Sequence[object]) -> Measured:
        return extra_memory(eager, compiled, factor, on_gpu=uses_gpu(inputs))

    return find_measured_failure(program, "peak-memory", compare)


def slow_compile_failure(
    program: GraphProgram, limit: float, compile_as: Callable[..., Callable[..., object]]
) -> Failure | None:
    """Return the failure of a program whose compile is slow; None if it is not.

    Args:
        limit: Least seconds that count as slow.
        compile_as: Compiles another program as the program is compiled.
    """

    def seconds(module: Callable[[], torch.nn.Module]) -> float:
        def compile_and_call() -> Call:
            inputs = [*program.inputs().values()]
            call = repeatable_of(program, compile_as(module()), inputs)
            call()
            return call

        return compile_seconds(compile_and_call)

    with under(program.modes, program.states):
        try:
            empty = min(seconds(Empty) for _ in range(2))  # the first one imports
            found = seconds(program.module)
            if is_slow_compile(found, empty, limit):
                found = min(found, seconds(program.module))  # other load only adds to a time
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # also sys.exit, if the compiler calls it
            return describe(error, program.expected)
    figures = f"{found:.2f} s, that of an almost empty program {empty:.2f} s"
    print(f"the compile takes {figures}")
    is_slow = is_slow_compile(found, empty, limit)
    return ("slow-compile", "the compile", figures) if is_slow else None


def find_measured_failure(
    program: GraphProgram, kind: str, compare: Callable[[Call, Call, Sequence[object]], Measured]
) -> Failure | None:
    """Measure both sides of a program; return its failure."""
    with under(program.modes, program.states):
        eager = repeatable_of(program, frugal(program.module()), [*program.inputs().values()])
        eager()
        inputs = [*program.inputs().values()]
        try:
            compiled = repeatable_of(program, program.compiled(), inputs)
            compiled()
            measured_failure = compare(eager, compiled, inputs)
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # also sys.exit, if the compiler calls it
            return describe(error, program.expected)
    if measured_failure.answer == "flaky":
        raise CannotTell(f"too close to tell: {measured_failure.detail}")
    return (
        (kind, "the compiled call", measured_failure.detail)
        if measured_failure.answer == "fails"
        else None
    )


def repeatable_of(
    program: GraphProgram, call: Callable[..., object], inputs: Sequence[object]
) -> Call:
    """Return a function that calls a program of the script, over and over."""
    flat = flat_call(program, call, [*program.inputs()])
    return repeatable(flat, inputs, program.modes, program.states)


def frugal(module: torch.nn.Module) -> Callable[..., object]:
    """Return a module that frees each value once it is read, as captured graphs do."""
    try:
        return torch.fx.symbolic_trace(module)
    except Exception as error:
        print(f"eager may hold values for longer than it must: {error_line(error)}")
        return module
