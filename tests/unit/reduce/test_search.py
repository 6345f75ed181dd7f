"""The searches: right on every small case, and as cheap as they claim."""

import itertools
import math

import pytest

from ctk.toolkit.search.search import (
    answered,
    each_alone,
    find_integer,
    first_true,
    landmarks,
    largest_subset,
    largest_true,
    least_landmark,
    least_true,
    strongest_true,
)


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
def test_all_ladder_searches_find_the_boundary(count: int):
    for boundary in range(count + 1):
        for search in (find_integer, largest_true, strongest_true):
            ask = Asked(lambda n, boundary=boundary: n <= boundary)
            assert answered(search(count), ask) == boundary
            assert all(1 <= n <= count for n in ask.questions)


def test_find_integer_is_cheap_for_small_results():
    ask = Asked(lambda n: False)
    assert answered(find_integer(1000), ask) == 0
    assert ask.questions == [1]


def test_largest_true_asks_log2_questions():
    for boundary in range(0, 301, 7):
        ask = Asked(lambda n, boundary=boundary: n <= boundary)
        answered(largest_true(300), ask)
        assert len(ask.questions) <= math.ceil(math.log2(301))


def test_ladder_searches_step_over_what_does_not_exist():
    missing = {1, 4, 5, 6}
    for boundary in range(11):
        existing = [n for n in range(1, 11) if n not in missing and n <= boundary]
        for search in (find_integer, largest_true, strongest_true):
            found = answered(search(10), lambda n, b=boundary: None if n in missing else n <= b)
            assert found == max(existing, default=0), (search.__name__, boundary)


def test_ladder_searches_return_what_was_true_even_if_not_monotone():
    for answers in itertools.product([True, False, None], repeat=5):
        for search in (find_integer, largest_true, strongest_true):
            found = answered(search(5), lambda n, answers=answers: answers[n - 1])
            assert found == 0 or answers[found - 1] is True


def test_largest_subset_leaves_exactly_the_needed_atoms():
    atoms = tuple("abcdefgh")
    for size in range(4):
        for needed in itertools.combinations(atoms, size):
            ask = Asked(lambda some, n=needed: not set(some) & set(n))
            chosen = answered(largest_subset(atoms), ask)
            assert chosen == tuple(atom for atom in atoms if atom not in needed)


def test_largest_subset_asks_one_question_when_everything_may_go():
    ask = Asked(lambda some: True)
    assert answered(largest_subset(range(300)), ask) == tuple(range(300))
    assert len(ask.questions) == 1


def test_largest_subset_costs_two_log_per_needed_atom():
    ask = Asked(lambda some: 17 not in some and 200 not in some)
    assert len(answered(largest_subset(range(256)), ask)) == 254
    assert len(ask.questions) <= 2 * 2 * 8 + 1


def test_largest_subset_of_nothing_asks_nothing():
    ask = Asked(lambda some: True)
    assert answered(largest_subset(()), ask) == ()
    assert not ask.questions


def test_the_strongest_is_asked_first():
    ask = Asked(lambda n: True)
    assert answered(strongest_true(1000), ask) == 1000
    assert ask.questions == [1000]


def test_choices_are_asked_until_one_is_true():
    ask = Asked(lambda choice: choice == "b")
    answered(first_true("abc"), ask)
    assert ask.questions == ["a", "b"]


def test_each_atom_alone_and_growing_blocks_behind_an_accepted_one():
    ask = Asked(lambda some: not {0, 60} & set(some))
    assert answered(each_alone(range(64)), ask) == tuple(n for n in range(64) if n not in (0, 60))
    assert ask.questions[:3] == [(0,), (1,), (1, 2, 3)]
    assert len(ask.questions) <= 24


def test_each_needed_atom_was_refused_alone():
    for size in range(4):
        for needed in itertools.combinations(range(7), size):
            ask = Asked(lambda some, n=needed: not set(some) & set(n))
            chosen = answered(each_alone(range(7)), ask)
            assert set(chosen) == set(range(7)) - set(needed)


def test_the_landmarks_of_a_number_are_below_it():
    assert landmarks(12) == [1, 2, 4, 6, 8, 9, 10, 11]
    assert landmarks(17) == [1, 2, 4, 8, 9, 13, 15, 16]
    assert [landmarks(n) for n in (1, 2, 3)] == [[], [1], [1, 2]]
    assert max(len(landmarks(n)) for n in range(1, 5000)) <= 51
    assert len(landmarks(2**61 - 1)) <= 125  # the primes of a large number are not searched for


def test_the_least_number_of_a_threshold_costs_about_two_bisections():
    for least in range(1, 64):
        ask = Asked(lambda n, least=least: n >= least)
        assert answered(least_true(64), ask) == least
        assert len(ask.questions) <= 9


@pytest.mark.parametrize(
    ("number", "factor", "questions"),
    [(64, 8, 6), (96, 2, 4), (224, 32, 8), (4096, 128, 11), (240, 24, 22), (105, 7, 20)],
)
def test_the_least_multiple_is_found_where_the_number_below_is_not_one(number, factor, questions):
    asked = []

    def fails(n: int) -> bool:
        asked.append(n)
        return n % factor == 0

    assert answered(least_true(number), fails) == factor
    assert len(set(asked)) <= questions


def test_the_least_number_that_exists():
    missing = {1, 2, 3, 8}
    for least in range(1, 20):
        exists = [n for n in range(1, 20) if n not in missing and n >= least]
        found = answered(least_true(20), lambda n, e=exists: None if n in missing else n in e)
        assert found == min([*exists, 20])


def test_of_what_was_found_no_landmark_is_true():
    conditions = [(m, k) for m in (1, 2, 3, 4, 6, 8, 12) for k in (1, 15, 20, 33)]
    for number, (factor, least) in itertools.product((24, 48, 63, 96, 120, 132), conditions):
        found = answered(least_landmark(number), lambda n, f=factor, k=least: n % f == 0 and n >= k)
        if number % factor == 0 and number >= least:
            assert found == -(-least // factor) * factor, (number, factor, least)
