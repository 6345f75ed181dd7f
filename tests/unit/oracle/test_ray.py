"""Questions on a real Ray cluster of this machine: two nodes, one of which is killed."""

import dataclasses
import os
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from ctk.toolkit.case.judgement import Judgement
from ctk.toolkit.oracle.answers.fingerprint import Digests
from ctk.toolkit.oracle.executors import executor_for
from ctk.toolkit.oracle.executors.base import Executor, Jobs
from ctk.toolkit.oracle.question import Question
from ctk.toolkit.oracle.questions.same_failure import SameFailure
from ctk.toolkit.oracle.speculation import speculating
from ctk.toolkit.reduce.driver import Reduction, minimize
from ctk.toolkit.reduce.problem import Problem
from tests.helpers.reduce_graphs import op_names
from tests.unit.oracle.test_executors import case_for

pytestmark = [pytest.mark.ray, pytest.mark.timeout(600)]

STORE_NBYTES = 80 << 20


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A head without cores, and two nodes with one each."""
    monkeypatch.setenv("RAY_USAGE_STATS_ENABLED", "0")
    monkeypatch.setenv("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    ray = pytest.importorskip("ray", reason="needs Ray: pip install 'ctk[ray]'")
    utils = pytest.importorskip("ray.cluster_utils")
    head = {"num_cpus": 0, "object_store_memory": STORE_NBYTES, "include_dashboard": False}
    found = utils.Cluster(initialize_head=True, head_node_args=head)
    monkeypatch.setenv("RAY_ADDRESS", found.address)
    for _ in range(2):
        found.add_node(num_cpus=1, object_store_memory=STORE_NBYTES)
    yield found
    ray.shutdown()
    found.shutdown()


def reduced(executor: Executor, on_improvement: Any = None) -> tuple[Reduction, list[Judgement]]:
    """Reduce the planted miscompile, and return what each answer was."""
    case = case_for("wrong_gelu", layers=2)
    case = dataclasses.replace(case, signature=executor.ask(Question(case)).signature)
    answers: list[Judgement] = []

    with speculating(executor, lambda member: SameFailure(case, member), Digests()) as oracle:
        problem = Problem(case, oracle, on_improvement=on_improvement)
        problem.on_progress = lambda progress: answers.append(progress.verdict)
        return minimize(problem), answers


def test_a_cluster_reduces_as_this_machine_does_even_if_a_node_is_killed(cluster: Any):
    with executor_for([], isolate=True) as executor:
        here, verdicts = reduced(executor)
    assert op_names(here.best) == ["gelu", "hardtanh"]

    node = cluster.list_all_nodes()[-1]
    killed: list[float] = []

    def kill_once(case: object) -> None:
        if not killed:
            killed.append(time.monotonic())
            threading.Thread(target=cluster.remove_node, args=(node, False)).start()

    with executor_for([], jobs=Jobs(2, "ray")) as executor:
        there, verdicts_there = reduced(executor, kill_once)
    assert killed
    assert there.best.graph.code == here.best.graph.code
    assert verdicts_there == verdicts
    assert there.questions == here.questions
    assert there.finished


def test_crashes_are_verdicts_there_too_and_nothing_is_left(cluster: Any):
    os.environ["RAY_ADDRESS"] = cluster.address
    with executor_for([], jobs=Jobs(1, "ray", {"CPU": 0.5})) as executor:
        seen = executor.ask(Question(case_for("segfault"))).signature
        assert seen is not None and seen.kind == "signal"
        assert executor.ask(Question(case_for("right"))).verdict.value == "passes"
