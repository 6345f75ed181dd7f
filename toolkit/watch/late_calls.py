"""The later calls of one watched graph: which are compared with eager, and which are kept.

    every N-th call             compared before the program makes it (CTK_CHECK_EVERY)
    a condition on the results  compared after it, on the inputs before it (CTK_CHECK_WHEN)
    each of the last calls      written to the ring before it (CTK_RING)

A condition is *newly met* by a call that meets it if the call before did not: a NaN that stays is
compared once. If the call agrees with eager, the failure is older: a wrong backward of the call
before made the weights NaN. Then the calls of the ring are compared as well, the newest first.

Conditions read the results. On a GPU the program waits for them (one number per call), and inputs
are copied before the call: all but the parameters that the graph does not write to.
"""

import dataclasses
import itertools
import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor
from torch.fx import GraphModule, Node
from torch.nn import Parameter

from ctk.compiler.errors import count_of
from ctk.compiler.fx.clone import clone_inputs
from ctk.compiler.fx.properties import mutated_bases
from ctk.compiler.fx.walk import output_leaves, placeholders
from ctk.compiler.options.conditions import Condition, parse_conditions
from ctk.compiler.torch_compat.process.process_state import outside_dispatch_modes
from ctk.repro_templates.graph.running import leaves
from ctk.toolkit.case.case import Case
from ctk.toolkit.case.inputs import named_inputs
from ctk.toolkit.case.store import load_case
from ctk.toolkit.execution.modes import current_modes
from ctk.toolkit.execution.private_copy import held_state, private_copy
from ctk.toolkit.watch.compared_call import ComparedCall
from ctk.toolkit.watch.first_call import CheckedCall
from ctk.toolkit.watch.ring import KeptCall, Ring
from ctk.toolkit.watch.watch_session import WatchOptions

logger = logging.getLogger("ctk")

_PLAIN = (Tensor, Parameter)


@dataclass(slots=True)
class LateCalls:
    """The calls of one graph so far.

    Attributes:
        graph: The captured graph, which names the results.
        without_loss: A condition on a loss, if no result can be one.
    """

    options: WatchOptions
    graph: GraphModule
    conditions: tuple[Condition, ...] = ()
    without_loss: Condition | None = None
    _numbers: Iterator[int] = field(default_factory=lambda: itertools.count(1))
    _met: frozenset[Condition] = frozenset()
    _written: list[bool] | None = None
    _holds_state: bool = False

    @classmethod
    def of(cls, options: WatchOptions, graph: GraphModule) -> "LateCalls":
        """Return the calls of a graph before the first."""
        return cls(options, graph, parse_conditions(options.check_when))

    @property
    def is_on(self) -> bool:
        """Whether later calls are watched."""
        return bool(self.options.check_every or self.conditions or self.options.ring)

    def count(self) -> int:
        """Return the number of a call that is about to be made, from 1."""
        return next(self._numbers)

    def sampled(self, number: int, name: str) -> ComparedCall | None:
        """Return the call if it is one of every N."""
        every = self.options.check_every
        return ComparedCall(number, name) if every and number % every == 0 else None

    def newly_met(self, results: object) -> tuple[Condition, ...]:
        """Return the conditions that the results meet, and those of the call before did not."""
        with outside_dispatch_modes(), torch.no_grad():
            met = frozenset(self._find_met(results))
        new = tuple(each for each in self.conditions if each in met - self._met)
        self._met = met
        return new

    def _find_met(self, results: object) -> Iterator[Condition]:
        flat = leaves(results)
        nan, inf = find_non_finite(flat) if self._asks_for_numbers else (False, False)
        found = {"nan": nan, "inf": inf}
        for condition in self.conditions:
            if condition.kind != "loss":
                is_met = found[condition.kind]
            else:
                loss = self._find_loss(flat)
                self.without_loss = condition if loss is None else None
                is_met = loss is not None and condition.is_exceeded(float(loss.detach()))
            if is_met:
                yield condition

    def copy_before_call(self, case: Case, args: tuple[object, ...]) -> Case:
        """Return the case of a call, with copies of all that the call may change.

        A graph writes to a parameter only by a node that names it, outside of autograd.
        """
        if self._written is None:
            self._holds_state = bool(held_state(case.graph))
            written = mutated_bases(case.graph.graph)
            self._written = [node in written for node in placeholders(case.graph)]
        if self._holds_state:
            graph, inputs = private_copy(case.graph, args, lazy=False)
            return case_of_call(dataclasses.replace(case, graph=graph), inputs)
        pairs = list(zip(args, self._written, strict=True))
        kept = [isinstance(value, Parameter) and not is_written for value, is_written in pairs]
        copied = [value for value, is_kept in zip(args, kept, strict=True) if not is_kept]
        clones = iter(clone_inputs(copied))
        inputs = tuple(
            v if is_kept else next(clones) for v, is_kept in zip(args, kept, strict=True)
        )
        return case_of_call(case, inputs)

    @property
    def _asks_for_numbers(self) -> bool:
        return any(condition.kind != "loss" for condition in self.conditions)

    def _find_loss(self, results: Sequence[object]) -> Tensor | None:
        """Return the scalar result named loss, else the only scalar result; None if none is."""
        names = [each.name if isinstance(each, Node) else "" for each in output_leaves(self.graph)]
        scalars = [
            (name, value)
            for name, value in zip(names, results, strict=False)
            if isinstance(value, Tensor) and is_real(value) and value.numel() == 1
        ]
        named = [value for name, value in scalars if name.rstrip("_0123456789") == "loss"]
        if named or len(scalars) == 1:
            return (named or [value for _, value in scalars])[0]
        return None


def is_real(value: Tensor) -> bool:
    """Return whether a result is a plain tensor of floating-point numbers of 16 bits or more."""
    is_wide = value.is_floating_point() and value.itemsize > 1
    return type(value) in _PLAIN and is_wide and not value.is_meta


def find_non_finite(values: Sequence[object]) -> tuple[bool, bool]:
    """Return whether tensors have a NaN, and an infinity.

    A sum is finite only if all its numbers are, so one pass, and one number from the device, decide
    for nearly every call.
    """
    found = [each.detach() for each in values if isinstance(each, Tensor) and type(each) in _PLAIN]
    parts = [torch.view_as_real(each) if each.is_complex() else each for each in found]
    numbers = [each for each in parts if is_real(each) and each.layout == torch.strided]
    if not numbers:
        return False, False
    place = numbers[0].device
    sums = [each.sum(dtype=torch.float32).to(place) for each in numbers]
    if bool(torch.stack(sums).isfinite().all()):
        return False, False
    return (
        any(bool(each.isnan().any()) for each in numbers),
        any(bool(each.isinf().any()) for each in numbers),
    )


def case_of_call(case: Case, args: tuple[object, ...]) -> Case:
    """Return the case of a call that is about to be made, with the backward that it may have."""
    differentiable = any(isinstance(each, Tensor) and each.requires_grad for each in args)
    modes = current_modes(backward=torch.is_grad_enabled() and differentiable)
    return dataclasses.replace(case, inputs=args, modes=modes)


def load_kept(call: KeptCall) -> Case:
    """Return the case of a call in the ring, which this process has written."""
    return load_case(call.folder, trust=True)


def load_number(ring: Ring | None, graph: str, number: int) -> Case | None:
    """Return the case of one call if the ring has it."""
    calls = ring.calls_of(graph) if ring is not None else []
    return next((load_kept(call) for call in calls if call.number == number), None)


def describe_agreement(
    call: ComparedCall, met: Sequence[Condition], checked: CheckedCall, older: int, before: Case
) -> str:
    """Return the notice for a call that meets conditions and agrees with eager."""
    names = {"nan": "a result has a NaN", "inf": "a result has an infinity"}
    seen = " and ".join(names.get(each.kind, f"{each} holds") for each in met)
    numbers = "with other random numbers" if checked.drew_random else "on the same inputs"
    tensors = named_inputs(before).items()
    broken = [name for name, value in tensors if any(find_non_finite([value]))]
    lines = [f"ctk: {call}: {seen}; {numbers} eager and compiled agree"]
    if broken:
        more = f" and {count_of(len(broken) - 1, 'other')}" if len(broken) > 1 else ""
        lines.append(f"  such numbers were in its input {broken[0]}{more} before the call")
    if older:
        lines.append(f"  next: comparing {count_of(older, 'call')} before it, from the ring")
    elif broken:
        lines.append("  next: run with CTK_RING=4, which compares the calls before it as well")
    else:
        lines.append("  it is not a failure of the compiler")
    return "\n".join(lines)
