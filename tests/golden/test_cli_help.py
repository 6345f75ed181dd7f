"""`ctk --help` and the help of each command, as users see them in 80 columns."""

from collections.abc import Callable

import pytest
from typer.testing import CliRunner

from ctk.toolkit.cli.app import COMMANDS, build_app

Compare = Callable[[str, str], None]


@pytest.fixture(autouse=True)
def eighty_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("NO_COLOR", "1")


def help_of(*command: str) -> str:
    result = CliRunner().invoke(build_app(), [*command, "--help"], prog_name="ctk")
    assert result.exit_code == 0
    return "".join(f"{line.rstrip()}\n" for line in result.stdout.splitlines())


def test_overview(golden: Compare) -> None:
    text = help_of()
    assert "..." not in text.partition("Commands:")[2], (
        "shorten the first line of that command's docstring"
    )
    golden("cli_help/ctk.txt", text)


@pytest.mark.parametrize("name", [command.name for command in COMMANDS])
def test_command(name: str, golden: Compare) -> None:
    text = help_of(*name.split())
    assert "--json" in text
    golden(f"cli_help/{name.replace(' ', '-')}.txt", text)


def test_commands_of_the_contract_are_there() -> None:
    wanted = {"run", "repro", "check", "bisect-pass", "minify", "diagnose", "ls", "show", "doctor"}
    assert wanted <= {command.name for command in COMMANDS}
