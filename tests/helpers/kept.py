"""Whether a case comes back from disk as it was: the same graph, and the same results in eager."""

import tempfile
from pathlib import Path

import torch

from ctk.toolkit.case.case import Case
from ctk.toolkit.case.graphs.graph_json import graph_to_json
from ctk.toolkit.case.store import load_case, save_case
from ctk.toolkit.execution.execute import Outcome, run_graph

KEPT = "kept"


def how_kept(case: Case) -> str:
    """Save, load and run a case; return `kept`, or what differs."""
    with tempfile.TemporaryDirectory() as folder:
        save_case(case, Path(folder) / "case", inputs="full")
        loaded = load_case(Path(folder) / "case", trust=True)
    if graph_to_json(case.graph)[0] != graph_to_json(loaded.graph)[0]:
        return "another graph"
    before = run_graph(case.graph, case.inputs, case.modes)
    after = run_graph(loaded.graph, loaded.inputs, loaded.modes)
    if type(before.error) is not type(after.error):
        return f"another error: {before.error!r}, then {after.error!r}"
    if same_values(before, after):
        return KEPT
    again = run_graph(case.graph, case.inputs, case.modes)
    return "other results" if same_values(before, again) else "not determined"


def same_values(a: Outcome, b: Outcome) -> bool:
    """Return whether two runs gave the same results, NaN in the same places."""
    return a.values.keys() == b.values.keys() and all(
        _same(value, b.values[name]) for name, value in a.values.items()
    )


def _same(a: object, b: object) -> bool:
    if not isinstance(a, torch.Tensor) or not isinstance(b, torch.Tensor):
        return type(a) is type(b) and (a == b or a != a)
    try:
        torch.testing.assert_close(a, b, rtol=0, atol=0, equal_nan=True)
    except AssertionError:
        return False
    return True
