"""The command line's own parts: options, answers, the shell, progress."""

import io
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import typer
from rich.syntax import Syntax
from typer.testing import CliRunner

from ctk.compiler.errors import CaptureError, ConfigError, TargetError, UnsupportedPlatform
from ctk.toolkit.cli.app import build_app
from ctk.toolkit.cli.shell import errors
from ctk.toolkit.cli.shell.answer import Answer, ExitCode, as_json_text, as_text, table
from ctk.toolkit.cli.shell.command_context import Command, guard_command
from ctk.toolkit.cli.shell.entry import Entry
from ctk.toolkit.cli.shell.errors import answer_of
from ctk.toolkit.cli.shell.progress import LogReporter, progress
from ctk.toolkit.options import parse_config, parse_value


class TestConfig:
    @pytest.mark.parametrize(
        ("text", "value"),
        [
            ("true", True),
            ("True", True),
            ("null", None),
            ("None", None),
            ("3", 3),
            ("1e-3", 1e-3),
            ("accuracy", "accuracy"),
            ("'accuracy'", "accuracy"),
            ('["a", "b"]', ["a", "b"]),
            ("('a', 1)", ("a", 1)),
            ('{"joint": ["f.py:g"]}', {"joint": ["f.py:g"]}),
            ("a=b", "a=b"),
            ("", ""),
            ("__import__('os')", "__import__('os')"),
        ],
    )
    def test_values(self, text: str, value: object) -> None:
        assert parse_value(text) == value

    def test_dotted_keys_stay_flat_and_the_last_one_wins(self) -> None:
        assert parse_config(["cpp.simdlen=1", "cpp.simdlen=2"]) == {"cpp.simdlen": 2}

    def test_value_may_hold_equals_signs(self) -> None:
        assert parse_config(["key=a=b"]) == {"key": "a=b"}

    def test_nothing_is_no_options(self) -> None:
        assert parse_config(None) == {}

    @pytest.mark.parametrize("pair", ["fuel", "=3", " =3"])
    def test_what_is_no_pair(self, pair: str) -> None:
        with pytest.raises(ConfigError, match="is not KEY=VALUE"):
            parse_config([pair])


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


class TestAnswer:
    def test_first_line_is_the_answer_even_when_it_is_long(self) -> None:
        headline = "wrong: " + "x" * 500 + " [graph0]"
        text = as_text(Answer(ExitCode.FAILURE, headline), io.StringIO())
        assert text == f"{headline}\n"

    def test_log_gets_plain_text_without_markup_or_padding(self) -> None:
        rows = table("name", "what")
        rows.add_row("[bold]a[/bold]", "y" * 300)
        rows.add_row("b", "")
        code = Syntax("x = 1", "python", background_color="default")
        text = as_text(Answer(ExitCode.NO_FAILURE, "ok", body=(rows, code)), io.StringIO())
        assert "\x1b" not in text
        assert "y" * 300 in text
        assert text.splitlines()[-1] == "x = 1"
        assert all(line == line.rstrip() for line in text.splitlines())

    def test_terminal_gets_colours(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("TERM", "xterm-256color")
        monkeypatch.delenv("NO_COLOR", raising=False)
        assert "\x1b[" in as_text(Answer(ExitCode.FAILURE, "wrong"), Terminal())

    def test_a_narrow_terminal_cuts_the_widest_cells(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("COLUMNS", "80")
        monkeypatch.setenv("NO_COLOR", "1")
        rows = [("graph0", "joint/fold_scale_into_add#2", "mean: accuracy: " + "4 wrong, " * 20)]
        columns = ("graph", "step", "what")
        cut = Answer(ExitCode.FAILURE, "wrong", body=(table(*columns, rows=rows),))
        _, _, row = as_text(cut, Terminal()).splitlines()
        assert row.startswith("graph0  joint/fold_scale_into_add#2  mean: accuracy: 4 wrong")
        assert (row[-1], len(row)) == ("…", 80)
        assert rows[0][2].strip() in as_text(cut, io.StringIO())
        whole = Answer(ExitCode.FAILURE, "x", body=(table(*columns, rows=rows, is_whole=True),))
        assert as_text(whole, Terminal()).count("wrong") == 20

    def test_json_has_the_same_head_for_every_command(self) -> None:
        document = json.loads(as_json_text("check", Answer(ExitCode.FAILURE, "wrong", {"a": [1]})))
        assert document == {"command": "check", "exit_code": 1, "answer": "wrong", "a": [1]}


def run_command(body: object, *arguments: str) -> tuple[int, str, str]:
    """Run a command made of one function through the shell; return exit code, stdout and stderr."""

    def command() -> Answer:
        assert callable(body)
        result = body()
        assert isinstance(result, Answer)
        return result

    app = typer.Typer(cls=Entry)
    app.callback()(lambda: None)
    app.command("probe")(guard_command(Command("probe", command)))
    result = CliRunner().invoke(app, ["probe", *arguments])
    return result.exit_code, result.stdout, result.stderr


def raising(error: BaseException) -> object:
    def body() -> Answer:
        raise error

    return body


class TestDoor:
    @pytest.mark.parametrize("code", list(ExitCode))
    def test_exit_code_is_the_answers(self, code: ExitCode) -> None:
        assert run_command(lambda: Answer(code, "said"))[0] == code

    def test_usage_error_is_on_stderr_without_a_traceback(self) -> None:
        code, out, err = run_command(raising(TargetError("unknown target 'x'\n  next: ctk doctor")))
        assert (code, out) == (2, "")
        assert err == "ctk: unknown target 'x'\n  next: ctk doctor\nhelp: ctk explain CTK103\n"

    def test_usage_error_as_json_is_on_stdout(self) -> None:
        code, out, _ = run_command(raising(TargetError("unknown target 'x'")), "--json")
        document = json.loads(out)
        assert code == document["exit_code"] == 2
        assert document["error"] == {
            "type": "TargetError",
            "message": "unknown target 'x'",
            "code": "CTK103",
        }

    @pytest.mark.parametrize("kind", [UnsupportedPlatform, CaptureError])
    def test_what_cannot_be_answered_here_is_125(self, kind: type[Exception]) -> None:
        code, out, _ = run_command(raising(kind("not here")))
        assert code == 125
        assert out.splitlines()[0] == "cannot tell: not here"

    def test_interruption_is_125(self) -> None:
        code, out, _ = run_command(raising(KeyboardInterrupt()))
        assert code == 125
        assert "interrupted" in out.splitlines()[0]

    @pytest.mark.parametrize("command", ["minify", "doctor"])
    def test_settings_that_torch_refuses_at_its_import_are_no_bug(
        self, command: str, tmp_path: Path
    ) -> None:
        given = [tmp_path] if command == "minify" else []
        words = (sys.executable, "-c", "from ctk.toolkit.cli.main import main; main()", command)
        env = os.environ | {"TORCH_LOGS": "nonsense"}
        said = subprocess.run((*words, *given), env=env, capture_output=True, text=True)
        assert said.returncode == (125 if command == "minify" else 1)
        assert "cannot be imported: ValueError: Invalid log settings: nonsense" in said.stdout
        assert "orrect TORCH_LOGS" in said.stdout and "a bug" not in said.stdout
        assert "Traceback" not in said.stdout + said.stderr

    def test_bug_leaves_its_traceback_in_a_file(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(errors.tempfile, "tempdir", str(tmp_path))
        code, out, err = run_command(raising(ZeroDivisionError("oh no")))
        (saved,) = tmp_path.glob("ctk-bug-*.txt")
        assert code == 125
        assert out.splitlines()[0] == (
            "cannot tell: ctk itself failed, which is a bug: ZeroDivisionError: oh no"
        )
        assert str(saved) in out
        assert "Traceback" not in out + err
        assert "ZeroDivisionError: oh no" in saved.read_text()

    def test_prints_of_the_program_go_to_stderr(self) -> None:
        def body() -> Answer:
            print("from the user's program")
            return Answer(ExitCode.NO_FAILURE, "fine")

        code, out, err = run_command(body)
        assert (code, out) == (0, "fine\n")
        assert "from the user's program" in err

    def test_answer_of_keeps_an_answer(self) -> None:
        answer = Answer(ExitCode.NO_FAILURE, "fine")
        assert answer_of(lambda: answer) is answer


CHILD = """
import os, subprocess
from ctk.toolkit.cli.shell.answer import Answer, ExitCode
from ctk.toolkit.cli.shell.entry import Entry
from ctk.toolkit.cli.shell.command_context import Command, guard_command
import typer

def body() -> Answer:
    os.write(1, b"from C++\\n")
    subprocess.run(["echo", "from a child"], check=True)
    return Answer(ExitCode.NO_FAILURE, "fine", body=("line",) * 5000)

app = typer.Typer(cls=Entry)
app.callback()(lambda: None)
app.command("probe")(guard_command(Command("probe", body)))
app()
"""


def test_stdout_belongs_to_the_answer_at_the_level_of_the_process() -> None:
    command = [sys.executable, "-c", CHILD, "probe"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[0] == "fine"
    assert "from" not in done.stdout
    assert {"from C++", "from a child"} <= set(done.stderr.splitlines())


class TestProgress:
    def test_log_gets_a_line_per_message_and_rare_counts(self) -> None:
        now = iter([0.0, 0.0, 1.0, 2.0, 8.0, 9.0])
        out = io.StringIO()
        report = LogReporter(out, clock=lambda: next(now))
        report("minifying", 0, 10)
        report("minifying", 1, 10)
        report("minifying", 2, 10)
        report("minifying", 4, 10)
        report("writing")
        assert out.getvalue().splitlines() == [
            "ctk: minifying (0/10)",
            "ctk: minifying (4/10, about 12 s left)",
            "ctk: writing",
        ]

    def test_count_without_a_total(self) -> None:
        out = io.StringIO()
        LogReporter(out, clock=lambda: 0.0)("asking", 7)
        assert out.getvalue() == "ctk: asking (7)\n"

    def test_terminal_gets_a_bar(self) -> None:
        out = Terminal()
        with progress(out) as report:
            report("minifying [graph0]", 3, 10)
        assert "minifying [graph0]" in out.getvalue()


def test_no_terminal_gets_lines() -> None:
    out = io.StringIO()
    with progress(out) as report:
        report("asking")
    assert out.getvalue() == "ctk: asking\n"


def test_version() -> None:
    result = CliRunner().invoke(build_app(), ["--version"])
    assert result.exit_code == 0
    assert result.stdout.startswith("ctk 0.")
