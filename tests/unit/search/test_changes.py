"""Where a predicate changes, with numbers that have no answer; and the questions ahead."""

import itertools

from ctk.toolkit.search.boundaries import find_change
from ctk.toolkit.search.questions import Answer, foresee, run_search


def change_of(answers: tuple[Answer, ...]) -> tuple[int | None, int | None]:
    return run_search(find_change(len(answers)), answers.__getitem__)


def test_every_monotone_predicate_with_every_set_of_gaps() -> None:
    for count in range(1, 7):
        for at in range(count + 1):
            for gaps in itertools.product((False, True), repeat=count):
                answers = tuple(None if gap else index >= at for index, gap in enumerate(gaps))
                false = [n for n, answer in enumerate(answers) if answer is False]
                true = [n for n, answer in enumerate(answers) if answer]
                expected = (false[-1] if false else None, true[0] if true else None)
                if false and not true:
                    expected = (false[-1], None)
                assert change_of(answers) == expected, answers


def test_the_neighbours_differ_also_if_the_answers_are_not_monotone() -> None:
    for answers in itertools.product((False, True), repeat=6):
        before, after = change_of(answers)
        if not answers[-1]:
            assert (before, after) == (5, None)
        elif answers[0]:
            assert (before, after) == (None, 0)
        else:
            assert before is not None and after == before + 1
            assert (answers[before], answers[after]) == (False, True)


def test_few_questions() -> None:
    asked: list[int] = []

    def is_true(number: int) -> bool:
        asked.append(number)
        return number >= 700

    assert run_search(find_change(1000), is_true) == (699, 700)
    assert len(asked) <= 12


def test_the_first_question_ahead_is_the_next_one() -> None:
    answers: dict[int, Answer] = {}
    while ahead := foresee(lambda: find_change(8), answers, 3):
        one = foresee(lambda: find_change(8), answers, 1)
        assert ahead[0] == one[0]
        assert len(set(ahead)) == len(ahead) <= 3
        assert not set(ahead) & set(answers)
        answers |= {number: number >= 5 for number in ahead}
    assert run_search(find_change(8), answers.__getitem__) == (4, 5)


def test_both_ends_are_asked_together() -> None:
    assert foresee(lambda: find_change(8), {}, 2) == [7, 0]
