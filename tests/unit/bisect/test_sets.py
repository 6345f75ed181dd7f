"""The smallest set for which a predicate holds."""

import pytest

from ctk.toolkit.bisect.search import smallest_subset


@pytest.mark.parametrize("needed", [{3}, {0, 9}, {2, 3, 7}, set(range(10))])
def test_exactly_what_is_needed_is_kept_in_order(needed):
    found = smallest_subset(lambda some: needed <= set(some), range(10))
    assert found == sorted(needed)


def test_few_questions_when_little_is_needed():
    asked: list[int] = []

    def holds(some):
        asked.append(len(some))
        return 17 in some

    assert smallest_subset(holds, range(64)) == [17]
    assert len(asked) <= 16


def test_nothing_that_holds_is_no_set():
    assert smallest_subset(lambda _: False, range(4)) is None
    assert smallest_subset(lambda _: True, []) is None


def test_of_two_ways_one_is_kept():
    found = smallest_subset(lambda some: 1 in some or {2, 3} <= set(some), range(5))
    assert found in ([1], [2, 3])
