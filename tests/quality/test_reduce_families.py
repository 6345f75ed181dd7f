"""The problems that reducers are measured with: they fail as given, and the same each time."""

import pytest
import torch

from tests.helpers.reduce_families import FAMILIES
from tests.helpers.reduce_families.predicates import copies, description_of, predicate_of

SEEDS = range(3)


@pytest.mark.parametrize("name", FAMILIES)
def test_a_problem_fails_as_given_runs_and_is_the_same_each_time(name: str):
    for seed in SEEDS:
        one, again = (FAMILIES[name].build(FAMILIES[name].small, seed) for _ in range(2))
        assert one.fails(one.graph, one.inputs)
        assert one.graph.code == again.graph.code
        assert len(one.graph.graph.nodes) > one.optimum.nodes + len(one.inputs) + 1
        results = one.graph(*copies(one.inputs))
        for value in results:
            assert name == "nan" or not value.isnan().any()
        for mine, other in zip(one.inputs, again.inputs, strict=True):
            assert torch.equal(mine.nan_to_num(), other.nan_to_num())


@pytest.mark.parametrize("name", FAMILIES)
def test_a_predicate_survives_as_json_and_refuses_a_graph_without_calls(name: str):
    planted = FAMILIES[name].build(FAMILIES[name].small, 0)
    predicate = predicate_of(description_of(planted.fails))
    assert predicate(planted.graph, planted.inputs)
    empty = torch.fx.symbolic_trace(lambda x: x)
    assert not predicate(empty, (torch.zeros(4, 4),))
