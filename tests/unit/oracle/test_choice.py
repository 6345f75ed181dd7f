"""Which question is asked, and every mistake said before anything is compiled."""

from pathlib import Path
from typing import Any

import pytest

from ctk.compiler.errors import ConfigError, CtkError
from ctk.toolkit.case.failure import Signature
from ctk.toolkit.oracle.questions.choice import NOTHING_CHOSEN, choice_of


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
        ({"command": ""}, "is empty"),
        ({"command": "'"}, "No closing quotation"),
        (
            {"command": "no-such-program-of-ctk {case}"},
            "is not a program here",
        ),
        ({"command": "true {case}", "match": "("}, "is not a regular expression"),
        ({"slower_than": "fast"}, "'fast' is not a factor"),
        ({"slower_than": "-1x"}, "is not a factor"),
        ({"memory_above": "nan"}, "is not a factor"),
        ({"memory_above": True}, "is not a factor"),
        ({"same_failure": "strickt"}, "did you mean 'strict'|strict"),
        ({"same_failure": "any", "slower_than": 2}, "--slower-than decides by itself"),
        ({"oracle": 3}, "oracle is a int"),
        ({"oracle": "no_such_module_of_ctk:f"}, "oracle 'no_such_module_of_ctk:f' cannot be"),
        ({"oracle": "nothing"}, "is not MODULE:CALLABLE"),
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


FILES = {
    "check.py": "import helper\nfrom package import part\n",
    "helper.py": "def f():\n    import late\n",
    "late.py": "",
    "other.py": "",
    "package/__init__.py": "",
    "package/part.py": "from package import deep\n",
    "package/deep.py": "",
    "package/__main__.py": "import package.part\n",
    "tools/run.sh": '#!/bin/sh\nhere=$(dirname "$0")\npython "$here/judge.py" "$1"; . ./data.txt\n',
    "tools/judge.py": "import words\n",
    "tools/words.py": "",
    "data.txt": "",
    "with space.py": "import late\n",
}
PACKAGE = ["package/__init__.py", "package/part.py", "package/deep.py"]
CHECK = ["check.py", "helper.py", "late.py", *PACKAGE]
TOOLS = ["tools/run.sh", "tools/judge.py", "tools/words.py", "data.txt"]


@pytest.mark.parametrize(
    ("command", "files"),
    [
        ("python check.py {case}", CHECK),
        ("sh -c 'exec python check.py {case}'", CHECK),
        ("sh -c 'cd /; python $HERE/check.py {case} >data.txt'", [*CHECK, "data.txt"]),
        ("sh -c '(python \"with space.py\" {case};exit 1)'", ["with space.py", "late.py"]),
        ("python other.py --data=data.txt {case}", ["other.py", "data.txt"]),
        ("sh tools/run.sh {case}", TOOLS),
        ("sh -c 'cd tools && ./run.sh {case}'", TOOLS),
        ("sh -c 'sh -c \"python other.py {case}\"'", ["other.py"]),
        ("python -m package {case}", [*PACKAGE, "package/__main__.py"]),
        ("python -m package.part {case}", PACKAGE),
        ("python -c 'import sys' {case}", []),
        ('sh -c "echo it\'s {case}"', []),
    ],
)
def test_the_files_of_a_command_are_those_that_it_names_and_what_these_import(
    command: str, files: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HERE", str(tmp_path))
    found = [path for path in choice_of(command=command).files if path.is_relative_to(tmp_path)]
    assert sorted(found) == sorted(tmp_path / name for name in files)


def test_a_program_of_the_user_counts_and_one_of_the_system_does_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "judge").write_text("#!/bin/sh\nexec grep -q sin $1/graph.json\n")
    (tmp_path / "judge").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin:/usr/bin")
    assert choice_of(command="judge {case}").files == (tmp_path / "judge",)
    assert choice_of(command="grep -q sin {case}").files == ()


def test_the_files_of_a_function_are_its_own_and_what_that_imports(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "asking_of_ctk.py").write_text(
        "import words_of_ctk\ndef fails(case): return True\n"
    )
    (tmp_path / "words_of_ctk.py").write_text("")
    monkeypatch.chdir(tmp_path)
    files = (tmp_path / "asking_of_ctk.py", tmp_path / "words_of_ctk.py")
    assert choice_of(oracle="asking_of_ctk.py:fails").files == files
    assert choice_of(oracle="asking_of_ctk:fails").files == files
    assert choice_of(oracle=lambda case: True).files == ()
