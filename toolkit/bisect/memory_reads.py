"""Does a compiled program read memory that is not its own? Compile once, call with other contents.

around the tensors   fresh memory   results of the compiled program
ff                   ff             nan      the first call, and once more: no chance
01                   ff             2.4e-38  other contents around: it reads outside of them
ff                   01             nan      other contents of fresh memory: it reads unwritten
"""

import dataclasses
from collections.abc import Callable, Mapping, Sequence

from ctk.compiler.fx.clone import clone_inputs
from ctk.compiler.torch_compat.process.guarded_memory import GuardBytes, guard_inputs
from ctk.repro_templates.graph.running import STATES, run_once
from ctk.repro_templates.numbers.compare import compare_runs
from ctk.toolkit.case.case import Case
from ctk.toolkit.execution.execute import run_compiled

OUTSIDE = "it reads memory outside of its operands: its results follow the contents around them"
UNWRITTEN = "it reads memory that nothing has written: its results follow the contents"
_OTHER = 0x01


def find_foreign_reads(case: Case) -> str:
    """Return a sentence if the results follow memory that the program may not read; else ""."""
    guard = GuardBytes()
    state = dataclasses.asdict(case.modes)
    answers: list[str] = []

    def call_with(call: Callable[..., object], contents: GuardBytes) -> Mapping[str, object]:
        guard.outside, guard.inside = contents.outside, contents.inside
        owned = clone_inputs(case.inputs)
        guard_inputs(owned, (), guard)
        return run_once(call, owned, state, STATES).values

    def ask(call: Callable[..., object], _: Sequence[object]) -> None:
        first = call_with(call, GuardBytes())
        if compare_runs(first, call_with(call, GuardBytes())):
            return
        if compare_runs(first, call_with(call, GuardBytes(outside=_OTHER))):
            answers.append(OUTSIDE)
        elif compare_runs(first, call_with(call, GuardBytes(inside=_OTHER))):
            answers.append(UNWRITTEN)

    run_compiled(case, guard=guard, then=ask)
    return answers[0] if answers else ""
