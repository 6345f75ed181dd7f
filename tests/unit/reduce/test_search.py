"""The searches: right on every small case, and as cheap as they claim."""

import itertools
import math

import pytest

from ctk.toolkit.reduce.search import find_integer, largest_subset, largest_true


class Asked:
    """A predicate that counts its calls and never answers the same question twice."""

    def __init__(self, answer):
        self.answer = answer
        self.questions = []

    def __call__(self, question):
        assert question not in self.questions, f"asked twice: {question}"
        self.questions.append(question)
        return self.answer(question)


@pytest.mark.parametrize("count", [0, 1, 2, 7, 64, 100])
def test_both_ladder_searches_find_the_boundary(count: int):
    for boundary in range(count + 1):
        for search in (find_integer, largest_true):
            ask = Asked(lambda n, boundary=boundary: n <= boundary)
            assert search(count, ask) == boundary
            assert all(1 <= n <= count for n in ask.questions)


def test_find_integer_is_cheap_for_small_results():
    ask = Asked(lambda n: False)
    assert find_integer(1000, ask) == 0
    assert ask.questions == [1]


def test_largest_true_asks_log2_questions():
    for boundary in range(0, 301, 7):
        ask = Asked(lambda n, boundary=boundary: n <= boundary)
        largest_true(300, ask)
        assert len(ask.questions) <= math.ceil(math.log2(301))


def test_ladder_searches_step_over_what_does_not_exist():
    missing = {1, 4, 5, 6}
    for boundary in range(11):
        existing = [n for n in range(1, 11) if n not in missing and n <= boundary]
        for search in (find_integer, largest_true):
            found = search(10, lambda n, b=boundary: None if n in missing else n <= b)
            assert found == max(existing, default=0), (search.__name__, boundary)


def test_ladder_searches_return_what_was_true_even_if_not_monotone():
    for answers in itertools.product([True, False, None], repeat=5):
        for search in (find_integer, largest_true):
            found = search(5, lambda n, answers=answers: answers[n - 1])
            assert found == 0 or answers[found - 1] is True


def test_largest_subset_leaves_exactly_the_needed_atoms():
    atoms = tuple("abcdefgh")
    for size in range(4):
        for needed in itertools.combinations(atoms, size):
            ask = Asked(lambda some, n=needed: not set(some) & set(n))
            chosen = largest_subset(atoms, ask)
            assert chosen == tuple(atom for atom in atoms if atom not in needed)


def test_largest_subset_asks_one_question_when_everything_may_go():
    ask = Asked(lambda some: True)
    assert largest_subset(range(300), ask) == tuple(range(300))
    assert len(ask.questions) == 1


def test_largest_subset_costs_two_log_per_needed_atom():
    ask = Asked(lambda some: 17 not in some and 200 not in some)
    assert len(largest_subset(range(256), ask)) == 254
    assert len(ask.questions) <= 2 * 2 * 8 + 1


def test_largest_subset_of_nothing_asks_nothing():
    ask = Asked(lambda some: True)
    assert largest_subset((), ask) == ()
    assert not ask.questions
