"""Which functions are the same question, and which cannot be compared."""

import functools
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from ctk.compiler.errors import CaseError, ConfigError
from ctk.compiler.usercode.identity import NotComparable
from ctk.toolkit.oracle.questions.choice import choice_of, digest_of
from ctk.toolkit.oracle.questions.user_function import FunctionOracle

WORDS = {"a": 1}


class Asks:
    """Is called, and counts how often."""

    def __init__(self, word: object) -> None:
        self.word, self.asked, self.count = word, [], {"all": 0}

    def __call__(self, case: object) -> bool:
        self.asked.append(case)
        self.count["all"] += 1
        return self.word in str(case)

    def method(self, case: object) -> bool:
        self.asked.append(case)
        return bool(self.word)


def make(word: object, default: object = 1) -> Callable[[object], object]:
    def fails(case: object, limit: object = default, *, more: object = default) -> object:
        return [word for _ in str(case)], limit, more

    return fails


def nested(word: str) -> Callable[[object], object]:
    inner = make(word)
    return lambda case: inner(case)


def cyclic() -> Callable[[object], object]:
    def fails(case: object) -> object:
        return fails if case else None

    return fails


DIFFERENT: dict[str, list[Callable[[], Callable[..., object]]]] = {
    "closure values": [functools.partial(make, word) for word in (1, 2, 1.0, "1", (1,), [1], {1})],
    "containers": [functools.partial(make, {"a": value}) for value in (1, [2], {"b": 3}, None)],
    "tensors": [functools.partial(make, torch.full((2,), float(n))) for n in (1, 2)],
    "graphs": [
        functools.partial(make, torch.fx.symbolic_trace(module()))
        for module in (torch.nn.ReLU, torch.nn.SiLU)
    ],
    "modules": [
        lambda: make(torch.nn.Dropout(0.1)), lambda: make(torch.nn.Dropout(0.2)),
        lambda: make(torch.nn.Dropout(0.1).eval()),
    ],
    "operators": [lambda: make(torch.ops.aten.sin.default), lambda: make(torch.ops.aten.cos)],
    "defaults": [functools.partial(make, 1, default) for default in (1, 2)],
    "functions within": [functools.partial(nested, word) for word in ("a", "b")],
    "partial": [lambda: functools.partial(make(1), limit=1), lambda: functools.partial(make(1))],
    "constants": [lambda: lambda case: "sin" in case, lambda: lambda case: "cos" in case],
    "nested code": [
        lambda: lambda case: [x + 1 for x in case], lambda: lambda case: [x + 2 for x in case],
    ],
    "objects": [lambda: Asks("a"), lambda: Asks("b"), lambda: Asks("a").method],
    "recursion": [cyclic],
}  # fmt: skip


@pytest.mark.parametrize("name", DIFFERENT)
def test_functions_that_may_answer_differently_are_told_apart(name: str) -> None:
    made = DIFFERENT[name]
    assert len({digest_of(each()) for each in made}) == len(made)
    assert [digest_of(each()) for each in made] == [digest_of(each()) for each in made]


def test_globals_count_unless_the_file_tells_them(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(case: object) -> bool:
        return any(word in str(case) for word in WORDS)

    first, by_file = digest_of(fails), digest_of(fails, by_file=True)
    monkeypatch.setitem(WORDS, "b", 2)
    assert digest_of(fails) != first and digest_of(fails, by_file=True) == by_file


def test_what_a_function_notes_is_no_other_question() -> None:
    asked: list[object] = []
    counts = {"all": 0}
    number = 0

    def fails(case: object) -> bool:
        nonlocal number
        number += 1
        counts["all"] += 1
        asked.append(case)
        return True

    for called in (fails, called_object := Asks("a"), called_object.method):
        first = digest_of(called)
        assert called("a") and digest_of(called) == first


@pytest.mark.parametrize("held", [threading.Lock(), sys.stdout, (each for each in [1])])
def test_what_cannot_be_compared_is_named(held: object) -> None:
    with pytest.raises(NotComparable, match=r"`word` is a "):
        digest_of(make(held))
    choice = choice_of(oracle=make(held))
    assert choice.code == ""
    with pytest.raises(ConfigError, match=r"make.<locals>.fails(.|\n)*`word` is a(.|\n)*FILE.py"):
        choice.check_resumable()


def test_an_object_that_raises_or_holds_too_much_cannot_be_compared() -> None:
    deep: list[object] = []
    for _ in range(100_000):
        deep = [deep]
    for held, said in ((deep, "RecursionError"), ([[] for _ in range(30_000)], "more than")):
        with pytest.raises(NotComparable, match=said):
            digest_of(make(held))


DIGEST = """
from tests.unit.oracle.test_code_digest import DIFFERENT, digest_of
print([digest_of(each()) for made in DIFFERENT.values() for each in made])
"""


def test_a_digest_is_the_same_in_every_process() -> None:
    run = subprocess.run([sys.executable, "-c", DIGEST], capture_output=True, text=True, check=True)
    here = [digest_of(each()) for made in DIFFERENT.values() for each in made]
    assert run.stdout.strip() == str(here)


def test_two_functions_of_one_name_share_no_answers() -> None:
    one, other = (choice_of(oracle=make(word)) for word in ("relu", "cos"))
    assert one.words == other.words
    identities = {FunctionOracle(make(1), each.words, each.code).identity for each in (one, other)}
    assert len(identities) == 2
    one.check_resumable()


def test_resuming_with_another_function_is_refused(tmp_path: Path) -> None:
    import ctk

    def has(word: str) -> Callable[[object], bool]:
        asked: list[object] = []

        def fails(case: object) -> bool:
            asked.append(case)
            return word in str(case.graph.graph)

        return fails

    graph = torch.fx.symbolic_trace(lambda x: torch.relu(torch.sin(torch.cos(x))))
    found = [ctk.minify(graph, [torch.ones(2)], oracle=has("relu"), out=tmp_path / "o")]
    found += [
        ctk.minify(graph, [torch.ones(2)], oracle=has("relu"), out=tmp_path / "o", resume=True)
    ]
    assert found[1].reduction.questions == 0 < found[0].reduction.questions
    with pytest.raises(CaseError, match=r"changed since: the function .*has.<locals>.fails"):
        ctk.minify(graph, [torch.ones(2)], oracle=has("cos"), out=tmp_path / "o", resume=True)
