"""The command line as a whole: `--json` everywhere, `-h -q -v`, near names, errors of all kinds."""

import errno
import json
import logging
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from ctk.compiler.errors import ConfigError, StorageError
from ctk.toolkit.cli.app import COMMANDS
from ctk.toolkit.cli.commands.run import answer_of_summary
from ctk.toolkit.cli.commands.show import facts_table
from ctk.toolkit.cli.shell import completion, errors
from ctk.toolkit.cli.shell.answer import Answer, ExitCode, as_json_text
from ctk.toolkit.cli.shell.command_context import Command, guard_command
from ctk.toolkit.cli.shell.entry import Entry
from ctk.toolkit.cli.shell.progress import progress
from ctk.toolkit.watch.script import RunSummary
from ctk.toolkit.watch.watch_session import Failure
from tests.helpers.cli import Said, ctk
from tests.helpers.warm_python import warm_python

NAMES = [command.name for command in COMMANDS]
CACHE = ("cache ls", "cache verify", "cache clear", "cache why")
ALONE = (
    *CACHE,
    "ci-summary",
    "compile",
    "ls",
    "doctor",
    "explain",
    "issue",
    "report",
    "run",
    "verify-rules",
    "c-api",
)
ON_A_CASE = [name for name in NAMES if name not in ALONE]


def probe(body: Any, *arguments: str) -> Said:
    """Run a command made of one function, in a group as `ctk` is one."""

    def command() -> Answer:
        return body()

    app = typer.Typer(cls=Entry)
    app.callback()(lambda: None)
    app.command("probe")(guard_command(Command("probe", command)))
    result = CliRunner().invoke(app, ["probe", *arguments])
    return Said(result.exit_code, result.stdout, result.stderr)


def raising(error: BaseException) -> Any:
    def body() -> Answer:
        raise error

    return body


class TestJson:
    """One document on stdout, whatever is wrong, wherever `--json` stands."""

    @pytest.mark.parametrize("name", NAMES)
    @pytest.mark.parametrize("wrong", [["--no-such-option"], ["--target"], ["a", "b", "c"]])
    def test_usage_errors_of_each_command(self, name: str, wrong: list[str]) -> None:
        if name == "run":
            wrong = ["--on-failure", "explode", "script.py"]
        words = name.split()
        for line in ([*words, "--json", *wrong], ["--json", *words, *wrong]):
            said = ctk(*line)
            assert said.code == said.data["exit_code"] == 2, line
            assert said.data["command"] == name
            assert said.data["answer"].startswith("ctk: ")
            assert said.data["error"]["message"]
            assert said.err == ""

    @pytest.mark.parametrize("name", ON_A_CASE)
    def test_missing_argument(self, name: str) -> None:
        assert "CASE" in ctk(name, "--json").data["answer"]

    def test_after_what_is_wrong(self) -> None:
        assert ctk("check", "--colour", "--json").data["exit_code"] == 2
        assert ctk("repro", "x", "--timeout", "soon", "--json").data["exit_code"] == 2

    @pytest.mark.parametrize("line", [["--json"], ["--json", "minfy"], ["minfy", "--json"]])
    def test_without_a_command(self, line: list[str]) -> None:
        said = ctk(*line)
        assert said.data["command"] == "ctk"
        assert said.code == said.data["exit_code"] == 2

    @pytest.mark.parametrize("line", [["--json", "--version"], ["check", "--json", "-h"]])
    def test_help_and_version(self, line: list[str]) -> None:
        said = ctk(*line)
        assert said.code == said.data["exit_code"] == 0
        assert said.data["text"].startswith(said.data["answer"])

    def test_the_value_of_an_option_and_the_options_of_a_script_are_not_ours(self) -> None:
        assert ctk("check", "--target", "--json").out == ""
        assert ctk("check", "--", "--json").out == ""
        said = ctk("run", "/no/such/script.py", "--json")
        assert (said.code, said.out) == (2, "")

    def test_numbers_that_json_does_not_have(self) -> None:
        answer = Answer(ExitCode.FAILURE, "wrong", {"a": [float("nan"), {"b": float("-inf")}]})
        text = as_json_text("check", answer)
        assert json.loads(text, parse_constant=pytest.fail)["a"] == ["nan", {"b": "-inf"}]


class TestNearNames:
    @pytest.mark.parametrize(
        ("typed", "meant"),
        [("minfy", "minify"), ("chekc", "check"), ("bisect", "bisect-pass"), ("diag", "diagnose")],
    )
    def test_command(self, typed: str, meant: str) -> None:
        said = ctk(typed)
        assert said.code == 2
        assert said.err.startswith(f"ctk: no such command: {typed!r}; did you mean {meant!r}?")

    def test_option(self) -> None:
        said = ctk("check", "x", "--targett", "ctk")
        assert "no such option: '--targett'; did you mean '--target'?" in said.err

    def test_nothing_near(self) -> None:
        assert "did you mean" not in ctk("xyzzy").err


class TestHelp:
    @pytest.mark.parametrize("name", NAMES)
    def test_short(self, name: str) -> None:
        words = name.split()
        assert ctk(*words, "-h").out == ctk(*words, "--help").out != ""

    def test_no_arguments(self) -> None:
        said = ctk()
        assert (said.code, said.out) == (2, "")
        assert "Usage: " in said.err


def working() -> Answer:
    with progress() as say:
        say("at work")
    logging.getLogger("ctk.somewhere").debug("a detail")
    return Answer(ExitCode.FAILURE, "the answer", body=("a detail of it",))


class TestQuietAndVerbose:
    @pytest.mark.parametrize("option", ["-q", "--quiet"])
    def test_quiet(self, option: str) -> None:
        said = probe(working, option)
        assert (said.code, said.out, said.err) == (1, "the answer\n", "")

    def test_quiet_document_is_whole(self) -> None:
        said = probe(working, "-q", "--json")
        assert said.data["answer"] == "the answer"
        assert said.err == ""

    def test_before_the_command(self, tmp_path: Path) -> None:
        (tmp_path / "graph0").mkdir()
        (tmp_path / "graph0" / "graph.json").write_text("{}")
        assert len(ctk("ls", tmp_path).out.splitlines()) > 1
        assert len(ctk("-q", "ls", tmp_path).out.splitlines()) == 1
        assert "ls took" in ctk("-v", "ls", tmp_path).err

    @pytest.mark.parametrize("option", ["-v", "--verbose"])
    def test_verbose(self, option: str) -> None:
        said = probe(working, option)
        assert "DEBUG ctk.somewhere: a detail" in said.err
        assert "ctk: probe took " in said.err
        assert said.out.startswith("the answer\n")

    def test_verbose_shows_the_traceback_of_what_was_raised(self) -> None:
        said = probe(raising(ConfigError("no")), "-v")
        assert "Traceback" in said.err
        assert "Traceback" not in probe(raising(ConfigError("no"))).err

    def test_the_log_is_as_before_afterwards(self) -> None:
        before = logging.getLogger("ctk").level, list(logging.getLogger("ctk").handlers)
        probe(working, "-v")
        assert (logging.getLogger("ctk").level, logging.getLogger("ctk").handlers) == before


class TestErrors:
    """Nothing that is raised exits with 1, which would say that a failure was found."""

    @pytest.mark.parametrize(
        ("error", "message"),
        [
            (OSError(errno.ENOSPC, "No space left on device"), "No space left"),
            (OSError(errno.EROFS, "Read-only file system", "/x"), "Read-only"),
            (PermissionError(errno.EACCES, "Permission denied", "/x"), "Permission denied"),
            (BrokenPipeError(errno.EPIPE, "Broken pipe"), "Broken pipe"),
            (StorageError("/x cannot be written"), "/x cannot be written"),
            (MemoryError(), "not enough memory"),
            (RecursionError("maximum recursion depth exceeded"), "nested too deeply"),
            (SystemExit(1), "sys.exit(1)"),
            (KeyboardInterrupt(), "interrupted"),
            (GeneratorExit(), "which is a bug"),
        ],
    )
    def test_cannot_tell(
        self, error: BaseException, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(errors.tempfile, "tempdir", str(tmp_path))
        said = probe(raising(error))
        assert said.code == 125
        assert said.first.startswith("cannot tell: ")
        assert message in said.first
        assert "Traceback" not in said.out + said.err

    def test_what_to_do_when_a_folder_cannot_be_written(self) -> None:
        said = probe(raising(OSError(errno.EROFS, "Read-only file system", "/x")))
        assert "--out" in said.out

    def test_a_bug_whose_traceback_cannot_be_saved(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def refuse(**_: object) -> None:
            raise OSError(errno.ENOSPC, "No space left on device")

        monkeypatch.setattr(errors.tempfile, "mkstemp", refuse)
        said = probe(raising(ZeroDivisionError("oh no")), "--json")
        assert said.code == 125
        assert said.data["traceback"] is None
        said = probe(raising(ZeroDivisionError("oh no")))
        assert "could not be saved" in said.out

    def test_an_answer_that_cannot_be_laid_out_is_a_bug_and_no_failure(
        self, tmp_path: Path
    ) -> None:
        class Broken:
            def __rich__(self) -> str:
                raise ValueError("cannot be shown")

        said = probe(lambda: Answer(ExitCode.FAILURE, "wrong", body=(Broken(),)))
        assert said.code == 125
        assert "cannot be shown" in said.first


COMPLETION = """
import sys
from ctk.toolkit.cli.main import main
try:
    main()
finally:
    print("torch" in sys.modules, file=sys.stderr)
"""


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("ctk mini", "minify"),
        ("ctk check --backw", "--backward"),
        ("ctk check --target induc", "inductor"),
        ("ctk repro ca", "cases/"),
        ("ctk show cases/", "cases/graph0"),
        ("ctk check ne", "net.py"),
        ("ctk minify x --out ca", "cases/"),
    ],
)
def test_completion(shell: str, words: str, expected: str, tmp_path: Path) -> None:
    (tmp_path / "cases" / "graph0").mkdir(parents=True)
    (tmp_path / "cases" / "graph0" / "manifest.json").write_text("{}")
    (tmp_path / "net.py").write_text("raise AssertionError('completion runs nothing')")
    asked = {
        "_CTK_COMPLETE": f"complete_{shell}",
        "_TYPER_COMPLETE_ARGS": words,
        "_TYPER_COMPLETE_FISH_ACTION": "get-args",
        "COMP_WORDS": words,
        "COMP_CWORD": str(len(words.split()) - 1),
    }
    done = subprocess.run(
        [sys.executable, "-c", COMPLETION],
        env={**os.environ, **asked},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert expected in done.stdout
    assert done.stderr == "False\n"


def test_targets_that_are_completed_exist() -> None:
    from ctk.toolkit.targets import TARGETS, target_names

    assert set(completion.TARGETS) <= set(target_names())
    assert {target.name for target in TARGETS} <= set(completion.TARGETS)


@pytest.mark.parametrize(
    ("variables", "is_coloured"),
    [
        ({}, False),
        ({"FORCE_COLOR": "1"}, True),
        ({"FORCE_COLOR": "1", "NO_COLOR": "1"}, False),
        ({"FORCE_COLOR": "1", "TERM": "dumb"}, False),
    ],
)
def test_colours(
    variables: dict[str, str], is_coloured: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("NO_COLOR", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm-256color")
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert ("\x1b[" in probe(working).out) == is_coloured


def test_the_first_failure_of_a_run_is_told_once(tmp_path: Path) -> None:
    failures = tuple(Failure(f"graph{i}", tmp_path / str(i), f"accuracy {i}") for i in range(2))
    answer = answer_of_summary("train.py", RunSummary(2, failures, tmp_path))
    said = "\n".join([answer.headline, *map(str, answer.body)])
    assert said.count("accuracy 0") == said.count("graph1: accuracy 1") == 1


def test_a_table_of_facts_leaves_out_what_is_empty() -> None:
    rows = facts_table({"modes": {"grad": False, "autocast": []}, "symbols": None})
    assert [str(cell) for cell in rows.columns[1].cells] == ['{"grad": false}']


@pytest.mark.parametrize(
    ("shell", "start"),
    [("bash", "_ctk_completion() {"), ("zsh", "#compdef ctk"), ("fish", "complete --command ctk")],
)
def test_the_completion_script_of_a_shell(shell: str, start: str) -> None:
    done = run_in_shell(f"_CTK_COMPLETE=source_{shell} ctk")
    assert done.lstrip().startswith(start)


def test_bash_evaluates_its_completion_script() -> None:
    asked = "COMP_WORDS=(ctk mini) COMP_CWORD=1; _ctk_completion ctk; echo ${COMPREPLY[@]}"
    assert run_in_shell(f'eval "$(_CTK_COMPLETE=source_bash ctk)"; {asked}').split() == ["minify"]


def run_in_shell(line: str) -> str:
    """Return the output of a line of bash, with `ctk` on the path."""
    path = os.pathsep.join((str(warm_python().parent), os.environ["PATH"]))
    command = ["bash", "-c", line]
    environ = os.environ | {"PATH": path}
    done = subprocess.run(command, env=environ, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout
