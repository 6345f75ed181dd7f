"""The searches: right on every small case, and as cheap as they claim."""

import itertools
import math

import pytest

from ctk.toolkit.search.blocks import (
    largest_subset,
    largest_subset_from_singles,
    likely_cause,
    likely_causes,
    prefix_end,
    single_cause,
    smallest_subset,
)
from ctk.toolkit.search.boundaries import (
    find_integer,
    largest_true,
    smallest_true,
    strongest_true,
    verify_boundary,
)
from ctk.toolkit.search.descents import descend, landmarks, least_landmark, least_number
from ctk.toolkit.search.questions import first_true, run_search


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
            assert run_search(search(count), ask) == boundary
            assert all(1 <= n <= count for n in ask.questions)


def test_find_integer_is_cheap_for_small_results():
    ask = Asked(lambda n: False)
    assert run_search(find_integer(1000), ask) == 0
    assert ask.questions == [1]


def test_largest_true_asks_log2_questions():
    for boundary in range(0, 301, 7):
        ask = Asked(lambda n, boundary=boundary: n <= boundary)
        run_search(largest_true(300), ask)
        assert len(ask.questions) <= math.ceil(math.log2(301))


def test_ladder_searches_step_over_what_does_not_exist():
    missing = {1, 4, 5, 6}
    for boundary in range(11):
        existing = [n for n in range(1, 11) if n not in missing and n <= boundary]
        for search in (find_integer, largest_true, strongest_true):
            found = run_search(search(10), lambda n, b=boundary: None if n in missing else n <= b)
            assert found == max(existing, default=0), (search.__name__, boundary)


def test_ladder_searches_return_what_was_true_even_if_not_monotone():
    for answers in itertools.product([True, False, None], repeat=5):
        for search in (find_integer, largest_true, strongest_true):
            found = run_search(search(5), lambda n, answers=answers: answers[n - 1])
            assert found == 0 or answers[found - 1] is True


def test_largest_subset_leaves_exactly_the_needed_atoms():
    atoms = tuple("abcdefgh")
    for size in range(4):
        for needed in itertools.combinations(atoms, size):
            ask = Asked(lambda some, n=needed: not set(some) & set(n))
            chosen = run_search(largest_subset(atoms), ask)
            assert chosen == tuple(atom for atom in atoms if atom not in needed)


def test_largest_subset_asks_one_question_when_everything_may_go():
    ask = Asked(lambda some: True)
    assert run_search(largest_subset(range(300)), ask) == tuple(range(300))
    assert len(ask.questions) == 1


def test_largest_subset_costs_two_log_per_needed_atom():
    ask = Asked(lambda some: 17 not in some and 200 not in some)
    assert len(run_search(largest_subset(range(256)), ask)) == 254
    assert len(ask.questions) <= 2 * 2 * 8 + 1


def test_largest_subset_of_nothing_asks_nothing():
    ask = Asked(lambda some: True)
    assert run_search(largest_subset(()), ask) == ()
    assert not ask.questions


def test_the_strongest_is_asked_first():
    ask = Asked(lambda n: True)
    assert run_search(strongest_true(1000), ask) == 1000
    assert ask.questions == [1000]


def test_choices_are_asked_until_one_is_true():
    ask = Asked(lambda choice: choice == "b")
    run_search(first_true("abc"), ask)
    assert ask.questions == ["a", "b"]


def test_each_atom_alone_and_growing_blocks_behind_an_accepted_one():
    ask = Asked(lambda some: not {0, 60} & set(some))
    assert run_search(largest_subset_from_singles(range(64)), ask) == tuple(
        n for n in range(64) if n not in (0, 60)
    )
    assert ask.questions[:3] == [(0,), (1,), (1, 2, 3)]
    assert len(ask.questions) <= 24


def test_each_needed_atom_was_refused_alone():
    for size in range(4):
        for needed in itertools.combinations(range(7), size):
            ask = Asked(lambda some, n=needed: not set(some) & set(n))
            chosen = run_search(largest_subset_from_singles(range(7)), ask)
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
        assert run_search(least_number(64), ask) == least
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

    assert run_search(least_number(number), fails) == factor
    assert len(set(asked)) <= questions


def test_the_least_number_that_exists():
    missing = {1, 2, 3, 8}
    for least in range(1, 20):
        exists = [n for n in range(1, 20) if n not in missing and n >= least]
        found = run_search(least_number(20), lambda n, e=exists: None if n in missing else n in e)
        assert found == min([*exists, 20])


def test_of_what_was_found_no_landmark_is_true():
    conditions = [(m, k) for m in (1, 2, 3, 4, 6, 8, 12) for k in (1, 15, 20, 33)]
    for number, (factor, least) in itertools.product((24, 48, 63, 96, 120, 132), conditions):
        found = run_search(
            least_landmark(number), lambda n, f=factor, k=least: n % f == 0 and n >= k
        )
        if number % factor == 0 and number >= least:
            assert found == -(-least // factor) * factor, (number, factor, least)


@pytest.mark.parametrize("boundary", [1, 2, 7, 100])
def test_a_checked_boundary_is_found(boundary):
    asked = []

    def fails(fuel):
        asked.append(fuel)
        return fuel >= boundary

    assert run_search(verify_boundary(100), fails) == boundary
    assert len(asked) <= 9


def test_there_is_no_boundary():
    assert run_search(verify_boundary(8), lambda _: True) is None
    assert run_search(verify_boundary(8), lambda _: False) is None
    assert run_search(verify_boundary(0), lambda _: True) is None


def test_a_single_cause():
    assert run_search(single_cause(["a", "b", "c"]), lambda names: "b" in names) == "b"
    assert run_search(single_cause(["a", "b"]), lambda names: False) is None
    assert run_search(single_cause(["a", "b"]), lambda names: len(names) > 1) is None


@pytest.mark.parametrize(
    ("causes", "found", "questions"),
    [("", (), 3), ("b", ("b",), 3), ("ac", ("a", "c"), 4), ("abc", ("a", "b", "c"), 4)],
)
def test_likely_causes_are_each_true_alone(causes, found, questions):
    asked: list[tuple[str, ...]] = []

    def is_true(atoms):
        asked.append(tuple(atoms))
        return any(atom in causes for atom in atoms)

    assert run_search(likely_causes(["a", "b", "c"], 4), is_true) == found
    assert len(asked) == questions
    assert len(run_search(likely_causes("abcdef", 2), lambda atoms: True)) == 3


def test_a_few_suspects_are_asked_about_one_by_one_many_by_halving():
    asked: list[list[str]] = []

    def without(names):
        asked.append(list(names))
        return "b" in names

    assert run_search(likely_cause(["a", "b", "c"]), without) == "b"
    assert asked == [["a"], ["b"]]
    asked.clear()
    assert run_search(likely_cause(list("cadebfgh")), without) == "b"
    assert len(asked) == 5
    asked.clear()
    assert run_search(likely_cause(list("bcdefgh")), without) == "b", "a likely one stands first"
    assert asked == [list("bcde"), ["b", "c"], ["b"], ["b"]]
    asked.clear()
    assert run_search(likely_cause(list("acdefgh")), without) is None
    assert len(asked) == 2
    assert run_search(likely_cause(["a", "c"]), without) is None


@pytest.mark.parametrize("needed", [{3}, {0, 9}, {2, 3, 7}, set(range(10))])
def test_exactly_what_is_needed_is_kept_in_order(needed):
    found = run_search(smallest_subset(range(10)), lambda some: needed <= set(some))
    assert found == tuple(sorted(needed))


def test_few_questions_when_little_is_needed():
    asked: list[int] = []

    def holds(some):
        asked.append(len(some))
        return 17 in some

    assert run_search(smallest_subset(range(64)), holds) == (17,)
    assert len(asked) <= 16


def test_nothing_that_holds_is_no_set():
    assert run_search(smallest_subset(range(4)), lambda _: False) is None
    assert run_search(smallest_subset([]), lambda _: True) is None


def test_of_two_ways_one_is_kept():
    found = run_search(smallest_subset(range(5)), lambda some: 1 in some or {2, 3} <= set(some))
    assert found in ((1,), (2, 3))


@pytest.mark.parametrize("count", [1, 2, 7, 64])
def test_the_smallest_true_number_costs_log2_questions(count: int):
    for boundary in range(1, count + 1):
        ask = Asked(lambda n, boundary=boundary: n >= boundary)
        assert run_search(smallest_true(count), ask) == boundary
        assert len(ask.questions) <= math.ceil(math.log2(count))


def test_the_end_of_the_shortest_prefix():
    for cause in "abcdefg":
        ask = Asked(lambda some, cause=cause: cause in some)
        assert run_search(prefix_end("abcdefg"), ask) == cause
        assert len(ask.questions) <= 3


def test_a_descent_ends_where_nothing_smaller_is_true():
    ask = Asked(lambda n: n % 3 == 0)
    assert run_search(descend(12, lambda n: (n - 1, n - 2, n - 3)[: n - 1]), ask) == 3
    assert ask.questions == [11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1]


def test_every_needed_set_of_seven_atoms_is_found():
    for size in range(1, 8):
        for needed in itertools.combinations(range(7), size):
            ask = Asked(lambda some, n=needed: set(n) <= set(some))
            assert run_search(smallest_subset(range(7)), ask) == needed
            assert () not in ask.questions
