"""Find the first wrong value inside a kernel: compile the program with every value as an output.

A kernel hides its values. Asking for all of them changes what is fused, so the answer is a hint for
the reducer, which believes only its oracle; when the failure hides, there is none. Costs one
compile.
"""

from collections.abc import Sequence

from ctk.compiler.errors import CtkError
from ctk.compiler.fx.rebuild import Change
from ctk.repro_templates.numbers.compare import compare_runs
from ctk.toolkit.case.case import Case
from ctk.toolkit.execution.execute import run_compiled, run_eager, run_reference
from ctk.toolkit.reduce.analysis import Facts, facts_of
from ctk.toolkit.reduce.graph_changes import changed
from ctk.toolkit.reduce.eager_values import TensorInfo


def first_wrong_node(case: Case) -> tuple[str, ...]:
    """Return the first captured node whose compiled value is wrong, if a single value shows it."""
    facts = facts_of(case)
    names = _tensor_nodes(facts)
    probe = changed(case, Change(outputs=tuple(names))) if names else None
    if probe is None:
        return ()
    eager = run_eager(probe)
    try:
        compiled = run_compiled(probe)
    except CtkError:
        return ()
    if eager.run is None or compiled.run is None:
        return ()
    wrong = compare_runs(eager.values, compiled.values, run_reference(probe, eager).values)
    positions = [int(m.name[3:]) for m in wrong if m.name.startswith("out")]
    return (names[min(positions)],) if positions else ()


def _tensor_nodes(facts: Facts) -> Sequence[str]:
    return [
        name for unit in facts.units for name in unit if isinstance(facts.infos[name], TensorInfo)
    ]
