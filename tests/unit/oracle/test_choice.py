"""Which question is asked, and every mistake said before anything is compiled."""

from pathlib import Path
from typing import Any

import pytest

from ctk.compiler.errors import ConfigError, CtkError
from ctk.toolkit.case.failure import Signature
from ctk.toolkit.oracle.choice import NOTHING_CHOSEN, choice_of


def test_nothing_chosen() -> None:
    choice = choice_of()
    assert choice == NOTHING_CHOSEN
    assert (choice.is_own, choice.told, choice.files) == (False, {}, ())


def test_a_command_is_told_as_it_was_typed() -> None:
    choice = choice_of(command="sh -c 'exit 1' {case}", match="x y")
    assert choice.command == ("sh", "-c", "exit 1", "{case}")
    assert choice.told == {"oracle": {"command": "sh -c 'exit 1' {case}", "match": "x y"}}
    assert choice.words == "`sh -c 'exit 1' {case}` (matching x y)"


@pytest.mark.parametrize(
    ("given", "limit"), [("1.5x", 1.5), ("2", 2.0), (3, 3.0), (0.9, 0.9), (" 1e1x ", 10.0)]
)
def test_factors(given: Any, limit: float) -> None:
    assert choice_of(slower_than=given).measured == Signature("slow", limit=limit)
    assert choice_of(memory_above=given).measured == Signature("peak-memory", limit=limit)


def test_a_function_by_name_is_loaded_and_its_file_counts(tmp_path: Path) -> None:
    file = tmp_path / "check.py"
    file.write_text("def fails(case): return True\n")
    choice = choice_of(oracle=f"{file}:fails")
    assert choice.function is not None
    assert choice.words == f"{file}:fails"
    assert choice.files == (file,)
    assert choice.told == {"oracle": {"function": f"{file}:fails"}}


def test_a_function_without_a_name_is_told_so() -> None:
    choice = choice_of(oracle=lambda case: True)
    assert choice.told == {"oracle": {"function": None}}
    assert "lambda" in choice.words


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"command": "true {case}", "slower_than": 2}, "--command and --slower-than are different"),
        ({"match": "x"}, "--match is about the output of a program"),
        ({"command": "true"}, "names no candidate"),
        ({"command": ""}, "is no command"),
        ({"command": "'"}, "No closing quotation"),
        (
            {"command": "no-such-program-of-ctk {case}"},
            "is no program here",
        ),
        ({"command": "true {case}", "match": "("}, "is no regular expression"),
        ({"slower_than": "fast"}, "'fast' is no factor"),
        ({"slower_than": "-1x"}, "is no factor"),
        ({"memory_above": "nan"}, "is no factor"),
        ({"memory_above": True}, "is no factor"),
        ({"same_failure": "strickt"}, "did you mean 'strict'|strict"),
        ({"same_failure": "any", "slower_than": 2}, "--slower-than decides by itself"),
        ({"oracle": 3}, "oracle is a int"),
        ({"oracle": "no_such_module_of_ctk:f"}, "oracle 'no_such_module_of_ctk:f' cannot be"),
        ({"oracle": "nothing"}, "is no MODULE:CALLABLE"),
        ({"oracle": "math:pi"}, "is a float, which cannot be called"),
    ],
)
def test_mistakes_are_said(options: dict[str, Any], said: str) -> None:
    with pytest.raises(CtkError, match=said) as caught:
        choice_of(**options)
    assert isinstance(caught.value, ConfigError)


def test_a_file_that_cannot_be_run(tmp_path: Path) -> None:
    script = tmp_path / "check.sh"
    script.write_text("exit 0")
    with pytest.raises(ConfigError, match="chmod"):
        choice_of(command=f"{script} {{case}}")
