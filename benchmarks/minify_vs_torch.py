"""Compare ctk's reducer with torch's own minifier on the same graphs and the same pure predicates.

Run from the root of the checkout: `python -m benchmarks.minify_vs_torch`. Nothing is compiled: what
counts is how many questions each asks (with Inductor one costs 2-4 s), how many of them it had
asked before (the same graph, inputs and
values: `ctk.toolkit.oracle.cache.fingerprint`), and how many call nodes and inputs are left.
"""

import contextlib
import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch
import torch.nn.functional as F
from torch.fx import GraphModule

from ctk.compiler.fx.walk import placeholders
from ctk.compiler.torch_compat import aot
from ctk.toolkit.case.case import Case
from ctk.toolkit.oracle.cache import fingerprint
from ctk.toolkit.reduce.driver import minimize
from ctk.toolkit.reduce.problem import Problem
from ctk.toolkit.reduce.size import call_nodes
from tests.helpers.reduce_graphs import FakeOracle, chain, feeds, has_ops, transformer, tree

Predicate = Callable[[Case], bool]


@dataclass(frozen=True, slots=True)
class Row:
    """What one reducer did with one failure."""

    nodes: int
    inputs: int
    questions: int
    repeated: int


def scenarios() -> list[tuple[str, Case, Predicate]]:
    """Return failures by name: a graph, and what it must keep to fail."""
    relu_gelu = {100: torch.relu, 101: F.gelu}
    spread = {20: torch.relu, 251: F.gelu}
    three = {20: torch.relu, 151: F.gelu, 280: F.softplus}
    return [
        ("chain of 300, one op", chain(300, {150: torch.relu}), has_ops("relu")),
        ("chain of 300, two adjacent", chain(300, relu_gelu), feeds("relu", "gelu")),
        ("chain of 300, two far apart", chain(300, spread), has_ops("relu", "gelu")),
        ("chain of 300, three far apart", chain(300, three), has_ops("relu", "gelu", "softplus")),
        ("encoder of 6 layers", transformer(6, 3), feeds("gelu", "hardtanh")),
        ("encoder of 12 layers", transformer(12, 10), feeds("gelu", "hardtanh")),
        ("tree of depth 7", tree(7), feeds("relu", "gelu")),
    ]


def with_ctk(case: Case, predicate: Predicate) -> Row:
    """Reduce with ctk."""
    oracle = FakeOracle(predicate)
    result = minimize(Problem(case, oracle))
    return _row(result.best, oracle)


def with_torch(case: Case, predicate: Predicate) -> Row:
    """Reduce with torch's minifier."""
    oracle = FakeOracle(predicate)

    def fails(gm: GraphModule, inputs: Sequence[object]) -> bool:
        return oracle(replace(case, graph=gm, inputs=tuple(inputs))).verdict.value == "reproduces"

    def ignore(gm: GraphModule, inputs: Sequence[object]) -> None:
        """Do not write the files that it writes at each improvement."""

    with contextlib.redirect_stderr(io.StringIO()), contextlib.redirect_stdout(io.StringIO()):
        graph, inputs = aot.torch_minifier()(case.graph, list(case.inputs), fails, ignore)
    return _row(replace(case, graph=graph, inputs=tuple(inputs)), oracle)


def _row(best: Case, oracle: FakeOracle) -> Row:
    distinct = {fingerprint(case) for case in oracle.asked}
    return Row(
        nodes=call_nodes(best),
        inputs=len(placeholders(best.graph)),
        questions=len(oracle.asked),
        repeated=len(oracle.asked) - len(distinct),
    )


def main() -> None:
    """Print the table."""
    print(f"torch {torch.__version__}; each cell: ctk / torch")
    print(f"{'failure':32}{'nodes':>7}{'left':>10}{'inputs':>10}{'questions':>14}{'repeated':>14}")
    for name, case, predicate in scenarios():
        ours, theirs = with_ctk(case, predicate), with_torch(case, predicate)
        left, inputs = f"{ours.nodes} / {theirs.nodes}", f"{ours.inputs} / {theirs.inputs}"
        questions = f"{ours.questions} / {theirs.questions}"
        percent = round(100 * theirs.repeated / theirs.questions)
        repeated = f"{ours.repeated} / {percent}%"
        nodes = call_nodes(case)
        print(f"{name:32}{nodes:>7}{left:>10}{inputs:>10}{questions:>14}{repeated:>14}")


if __name__ == "__main__":
    main()
