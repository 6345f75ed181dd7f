"""The protocol of a search: a generator that yields questions and is sent their answers.

def find_integer(count): ...    >>> run_search(find_integer(9), lambda n: n <= 5)
    yields 1 2 3 4 8 6 5            5
"""

from collections import deque
from collections.abc import Callable, Generator, Mapping, Sequence
from typing import TypeVar

Choice = TypeVar("Choice")
Result = TypeVar("Result")
Other = TypeVar("Other")

Answer = bool | None
"""True: the candidate still fails. False: it does not. None: there is no such candidate."""

Search = Generator[Choice, Answer, Result]


def run_search(search: Search[Choice, Result], is_true: Callable[[Choice], Answer]) -> Result:
    """Run a search to its end, with a predicate that answers its questions."""
    try:
        choice = next(search)
        while True:
            choice = search.send(is_true(choice))
    except StopIteration as end:
        return end.value


def map_choices(
    search: Search[Choice, Result], make: Callable[[Choice], Other]
) -> Search[Other, Result]:
    """Translate the questions of a search; its answers and its result stay."""
    try:
        choice = next(search)
        while True:
            choice = search.send((yield make(choice)))
    except StopIteration as end:
        return end.value


def first_true(choices: Sequence[Choice]) -> Search[Choice, Choice | None]:
    """Ask one choice after the other; return the first that is true."""
    for choice in choices:
        if (yield choice):
            return choice
    return None


def foresee(
    make: Callable[[], Search[Choice, Result]], answers: Mapping[Choice, Answer], most: int
) -> list[Choice]:
    """Return the questions that a search asks next; none if the answers lead to its end.

    The first one is certain. Then the search is played on with each answer that it may get, the
    nearest questions first: they are worth asking at the same time.

    Args:
        make: Makes the search, which is played from its beginning.
        most: Largest number of questions.
    """
    found: list[Choice] = []
    assumed: deque[Mapping[Choice, Answer]] = deque([{}])
    while assumed and len(found) < most:
        guess = assumed.popleft()
        choice = _next_question(make(), {**answers, **guess})
        if not choice:
            continue
        if choice[0] not in found:
            found += choice
        assumed += [{**guess, choice[0]: True}, {**guess, choice[0]: False}]
    return found


def _next_question(
    search: Search[Choice, Result], answers: Mapping[Choice, Answer]
) -> list[Choice]:
    """Return the first question without an answer; empty if the search ends."""
    try:
        choice = next(search)
        while choice in answers:
            choice = search.send(answers[choice])
    except StopIteration:
        return []
    return [choice]
