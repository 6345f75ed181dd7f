"""Find custom operators that do not keep to their declaration, on their operands of an eager run.

A compiler knows an operator by its schema and its fake implementation. Where the kernel differs,
each compiler gives wrong results, and an innocent node looks guilty:

    y = x.cos(); z = mylib.scale(y)     its kernel runs `y.mul_(2)`, and declares mutates_args=()
    y.sin()                             may be computed before the call: `sin` is wrong

Each call of the run is checked:

1. It leaves the arguments as they are that it does not declare to write to.
2. Its results share memory only where it declares it.
3. Its kernel records no gradient: without a registered formula, compiled code has none.
4. Its fake implementation gives the types, shapes and strides of its results.
5. Called again, it gives the same results, unless it declares that it draws random numbers.
6. Traced alone, it gives the same results and gradients (traced_operators.py).

torch.library.opcheck asks the same of one call with given arguments, and compiles it: here are the
operands of the failing program, in one run of eager. A wrong backward formula is not a fault, if
eager uses it as well.
"""

import contextlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch import Tensor

from ctk.compiler.dispatch.fake_kernels import fake_kernel_id
from ctk.compiler.fx.clone import clone_value, same_bits
from ctk.compiler.observe import first_line
from ctk.compiler.torch_compat.fake import fake_tensors as fake
from ctk.compiler.torch_compat.fx import graphs
from ctk.compiler.torch_compat.fx.custom_kernels import (
    Argument,
    arguments_of,
    custom_operators,
    is_seeded,
    kernels_replaced,
    operator_name,
)
from ctk.compiler.torch_compat.process.process_state import compile_session
from ctk.repro_templates.numbers.compare import compare_values
from ctk.repro_templates.numbers.layout import has_memory, share
from ctk.toolkit.case.case import Case
from ctk.toolkit.compile_log.check import Finding
from ctk.toolkit.compile_log.meta_values import metadata_mismatch
from ctk.toolkit.compile_log.steps import CompileStep
from ctk.toolkit.compile_log.traced_operators import find_trace_faults
from ctk.toolkit.execution.declared_operators import same_draws
from ctk.toolkit.execution.execute import run_private
from ctk.toolkit.execution.kept_operators import trace_id

_REPEATED = 4
"""How many calls of an operator are made again, with fake and with real operands."""

Given = Sequence[tuple[Argument, Any]]


@dataclass(frozen=True, slots=True)
class OperatorFault:
    """A custom operator that does not keep to its declaration, or differs in a trace.

    Attributes:
        where: `operator/mylib::scale`, or `operator/trace.mylib::scale`.
        operator: `mylib::scale`.
        nodes: Its nodes in the captured graph.
        predicate: Its fault: `mutates its argument ...`.
    """

    where: str
    operator: str
    nodes: tuple[str, ...]
    predicate: str

    @property
    def remedy(self) -> str:
        """How the operator is run where its fault is left out."""
        return "kept whole" if self.where == f"operator/trace.{self.operator}" else "as declared"

    def __str__(self) -> str:
        return f"{self.operator} {self.predicate}"


def find_operator_faults(case: Case) -> tuple[OperatorFault, ...]:
    """Run a case in eager, and return the first fault of each custom operator that it calls.

    A case that breaks CUDA in eager is not run: its process could run no further question.
    """
    if case.signature is not None and case.signature.breaks_eager:
        return ()
    declared = find_declaration_faults(case)
    known = {each.operator for each in declared}
    traced = (
        OperatorFault(trace_id(each), operator_name(each), _nodes_of(case, each), what)
        for each, what in find_trace_faults(case)
    )
    return (*declared, *(each for each in traced if each.operator not in known))


def find_declaration_faults(case: Case) -> tuple[OperatorFault, ...]:
    """Return the first fault of each custom operator that a case calls in eager; trace none."""
    operators = custom_operators()
    if not operators:
        return ()
    watch = _Watch()
    replaced = kernels_replaced({each: partial(watch.call, each) for each in operators})
    with contextlib.suppress(Exception):  # of the program: the calls before it were checked
        run_private(case.graph, case.inputs, case.modes, around=replaced)
    return tuple(
        OperatorFault(str(fake_kernel_id(each)), operator_name(each), _nodes_of(case, each), what)
        for each, what in watch.faults.items()
    )


def find_operator_findings(case: Case) -> Iterator[Finding]:
    """Yield the faults of custom operators as findings of a check."""
    for fault in find_operator_faults(case):
        step = CompileStep("operator", "operator", fault.where, case.graph, None, "exact")
        reason = f"{', '.join(fault.nodes) or fault.where}: {fault.predicate}"
        yield Finding(step, "wrong", None, next(iter(fault.nodes), None), 1, reason)


def _nodes_of(case: Case, operator: Any) -> tuple[str, ...]:
    called = (operator, operator.overloadpacket)
    return tuple(node.name for node in case.graph.graph.nodes if node.target in called)


@dataclass(slots=True)
class _Watch:
    """Checks the calls of operators, and keeps the first fault of each."""

    faults: dict[Any, str] = field(default_factory=dict[Any, str])
    _calls: Counter[Any] = field(default_factory=Counter[Any])

    def call(
        self,
        operator: Any,
        kernel: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
    ) -> Any:
        if operator in self.faults:
            return kernel(*args, **kwargs)
        self._calls[operator] += 1
        given = arguments_of(operator, args, kwargs)
        before = [clone_value(value) for _, value in given]
        results = kernel(*args, **kwargs)
        called = _Call(operator, kernel, tuple(kwargs), given, before, results)
        checks = _CHECKS if self._calls[operator] <= _REPEATED else _CHECKS[:_ONCE]
        fault = next((what for check in checks if (what := check(called))), "")
        if fault:
            self.faults[operator] = fault
        return results


@dataclass(frozen=True, slots=True)
class _Call:
    """One call: its arguments after it and before it, and its results."""

    operator: Any
    kernel: Callable[..., Any]
    names: tuple[str, ...]
    given: Given
    before: Sequence[Any]
    results: Any

    def again(self, function: Callable[..., Any], values: Sequence[Any]) -> Any:
        """Call a function with other values of the arguments."""
        count = len(values) - len(self.names)
        return function(*values[:count], **dict(zip(self.names, values[count:], strict=True)))


def _check_writes(call: _Call) -> str:
    for (argument, value), before in zip(call.given, call.before, strict=True):
        pairs = zip(graphs.tree_leaves(value), graphs.tree_leaves(before), strict=True)
        is_same = all(same_bits(*p) for p in pairs if has_memory(p[0]) and has_memory(p[1]))
        if not argument.is_written and not is_same:
            return f"mutates its argument `{argument.name}`, which its schema does not declare"
    return ""


def _check_memory(call: _Call) -> str:
    results = [each for each in graphs.tree_leaves(call.results) if isinstance(each, Tensor)]
    for argument, value in call.given:
        owned = [] if argument.is_viewed else graphs.tree_leaves(value)
        pairs = ((result, each) for result in results for each in owned)
        if any(result is each or share(result, each) for result, each in pairs):
            return f"returns memory of its argument `{argument.name}`, which it does not declare"
    is_viewing = any(argument.is_viewed for argument, _ in call.given)
    twice = (share(a, b) for n, a in enumerate(results) for b in results[:n])
    return "" if is_viewing or not any(twice) else "returns results that share memory"


def _check_gradient(call: _Call) -> str:
    declared = [value for argument, value in call.given if argument.is_viewed]
    known = {id(each) for each in graphs.tree_leaves(declared)}
    results = (each for each in graphs.tree_leaves(call.results) if id(each) not in known)
    if any(isinstance(each, Tensor) and each.requires_grad for each in results):
        return "records gradients in its kernel, without a registered autograd formula"
    return ""


def _check_fake(call: _Call) -> str:
    mode = fake.new_fake_mode()
    try:
        with torch.no_grad(), compile_session(), fake.without_log(), mode:
            values = graphs.tree_map(partial(fake.to_fake, mode=mode), list(call.before))
            told = graphs.tree_leaves(call.again(call.operator, values))
    except Exception as error:
        if fake.is_data_dependent(error):
            return ""
        return f"has a fake implementation that raises {type(error).__name__}: {first_line(error)}"
    gave = graphs.tree_leaves(call.results)
    if len(told) != len(gave):
        return f"gives {len(gave)} results, and its fake implementation {len(told)}"
    for number, (expected, real) in enumerate(zip(told, gave, strict=True)):
        mismatch = metadata_mismatch(str(number), expected, real)
        if mismatch is not None:
            form = "device" if mismatch.kind == "structure" else mismatch.kind
            which = f" of result {number}" if len(gave) > 1 else ""
            return f"has a fake implementation with another {form}{which}: {mismatch.detail}"
    return ""


def _check_repeats(call: _Call) -> str:
    if is_seeded(call.operator):
        return ""

    def repeat() -> Any:
        with torch.no_grad():
            return call.again(call.kernel, [clone_value(value) for value in call.before])

    if _agree(call.results, repeat()):
        return ""
    with same_draws():
        first = repeat()
    with same_draws():
        draws = _agree(first, repeat())
    return DRAWS if draws else "gives other results for the same arguments"


DRAWS = "draws random numbers without the tag nondeterministic_seeded"


def _agree(results: Any, others: Any) -> bool:
    pairs = zip(graphs.tree_leaves(results), graphs.tree_leaves(others), strict=True)
    return all(compare_values("", *pair) is None for pair in pairs)


_CHECKS = (_check_writes, _check_memory, _check_gradient, _check_fake, _check_repeats)
_ONCE = 3
"""The first of these need no second call."""
