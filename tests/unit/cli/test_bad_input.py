"""Bad input: a clear message on stderr, exit code 2, no traceback."""

import json
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tests.helpers.cli import ctk, write

NOISY = """
import sys, torch

def call(x):
    print("the model runs", file=sys.stderr)
    return x + 1

def model(): return call
def inputs(): return torch.zeros(3)
def tidy(graph): pass
"""
CONFIG = """
def config(): return {"custom_passes": {"joint": [f"{__file__}:tidy"]}}
"""

COMMANDS_ON_A_CASE = ("repro", "check", "bisect-pass", "minify", "diagnose")


class TestBadInput:
    @pytest.mark.parametrize("command", [*COMMANDS_ON_A_CASE, "show", "ls"])
    def test_no_such_folder(self, command: str, tmp_path: Path) -> None:
        said = ctk(command, tmp_path / "missing" / "graph0")
        assert (said.code, said.out) == (2, "")
        assert "no such folder" in said.err

    @pytest.mark.parametrize("command", COMMANDS_ON_A_CASE)
    def test_truncated_manifest(self, command: str, case: Path) -> None:
        manifest = case / "manifest.json"
        manifest.write_text(manifest.read_text()[:100])
        said = ctk(command, case)
        assert said.code == 2
        assert "manifest.json" in said.err
        assert "Traceback" not in said.err

    @pytest.mark.parametrize("command", COMMANDS_ON_A_CASE)
    def test_newer_schema(self, command: str, case: Path) -> None:
        manifest = case / "manifest.json"
        manifest.write_text(json.dumps(json.loads(manifest.read_text()) | {"schema": 999}))
        said = ctk(command, case)
        assert said.code == 2
        assert "newer ctk" in said.err

    @pytest.mark.parametrize(
        ("target", "message"),
        [
            ("inducter", "did you mean 'inductor'"),
            ("no_such_module:compile", "no_such_module"),
        ],
    )
    def test_target(self, target: str, message: str, good: Path) -> None:
        said = ctk("check", good, "--target", target)
        assert said.code == 2
        assert message in said.err

    def test_an_empty_name(self) -> None:
        said = ctk("check", "")
        assert said.code == 2
        assert "the name of the CASE is empty" in said.err

    def test_option_of_the_target(self, good: Path) -> None:
        said = ctk("check", good, "--config", "fule=3")
        assert said.code == 2
        assert "did you mean 'fuel'" in said.err

    @pytest.mark.parametrize(
        ("option", "message"),
        [
            ("fold_constant.max_nbytes=1", "did you mean 'fold_constants'"),
            ("fold_constants.max_nbyte=1", "did you mean 'max_nbytes'"),
            ("joint/fold_constants.max_nbytes=1M", "max_nbytes takes int, not '1M'"),
            ("disable=joint/fold_constant", "did you mean 'joint/fold_constants'"),
            ("disable=joint/mean_as_sum", "'joint/mean_as_sum', which is not a pass\n"),
            ("codegen=cc", "did you mean 'c'"),
            ("decompositions=aten.gleu", "did you mean 'aten.g"),
        ],
    )
    def test_option_of_a_pass(self, option: str, message: str, good: Path) -> None:
        said = ctk("check", good, "--config", option)
        assert said.code == 2
        assert message in said.err

    @pytest.mark.parametrize("own", ["", CONFIG])
    @pytest.mark.parametrize(
        ("option", "message"),
        [
            ("disable=joint/fold_constant", "did you mean 'joint/fold_constants'"),
            ("verify=maybe", "verify takes true or false, not 'maybe'"),
            ("disable=joint/tidi", "disable names 'joint/tidi', which is not a pass"),
        ],
    )
    def test_a_typo_is_found_before_the_program_runs(
        self, option: str, message: str, own: str, tmp_path: Path
    ) -> None:
        program = write(tmp_path, "net.py", NOISY + own)
        said = ctk("check", program, "--config", option)
        assert said.code == 2
        assert said.err.count(message) == 1
        assert "the model runs" not in said.out + said.err

    def test_a_pass_of_the_programs_own_can_be_disabled(self, tmp_path: Path) -> None:
        program = write(tmp_path, "net.py", NOISY + CONFIG)
        said = ctk("check", program, "--config", "disable=joint/tidy")
        assert said.code == 0, said.err
        assert "names" not in said.err

    def test_program_that_raises(self, tmp_path: Path) -> None:
        program = write(tmp_path, "raises.py", "x = 1\nraise RuntimeError('at import')\n")
        said = ctk("check", program)
        assert said.code == 125
        assert "at import" in said.out + said.err
        assert "line 2" in said.out + said.err

    def test_program_without_model(self, tmp_path: Path) -> None:
        said = ctk("check", write(tmp_path, "empty.py", "def inputs(): return ()\n"))
        assert said.code == 2
        assert "model()" in said.err

    def test_unknown_option_and_missing_argument(self) -> None:
        assert ctk("check", "--colour").code == 2
        assert ctk("check").code == 2

    def test_case_whose_graph_calls_what_is_not_allowed(self, case: Path) -> None:
        graph = case / "graph.json"
        graph.write_text(graph.read_text().replace("relu", "system"))
        said = ctk("repro", case)
        assert said.code == 2


def test_a_name_that_is_too_long_is_a_usage_error() -> None:
    for command in ("check", "ls", "show"):
        said = ctk(command, "a" * 5000)
        assert said.code == 2, said.out
        assert "too long" in said.err


@pytest.mark.parametrize("command", ["ls", "check", "doctor"])
def test_a_working_folder_that_is_gone_is_told_before_torch_dies_of_it(
    command: str, tmp_path: Path
) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    words = [str(Path(sys.executable).with_name("ctk")), command, "--json"]
    words += ["net.py"] if command == "check" else []
    line = f"cd {gone}; rmdir {gone}; exec {shlex.join(words)}"
    done = subprocess.run(["sh", "-c", line], capture_output=True, text=True, check=False)
    assert done.returncode == 125, done.stderr
    assert "the working folder is gone" in json.loads(done.stdout)["answer"]
