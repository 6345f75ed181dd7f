"""`ctk bisect-version` on releases that install in a second: searches, tables, ends, errors."""

import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from ctk.compiler.errors import StorageError
from ctk.toolkit.operations.options import VersionOptions
from ctk.toolkit.operations.versions import questions
from ctk.toolkit.operations.versions.release_choice import find_known_bad
from ctk.toolkit.processes.tree import is_alive
from ctk.toolkit.releases import environments as module
from tests.helpers.cli import GOOD, Said, ctk, write
from tests.helpers.fake_index import script_text, write_torch, write_triton

TRITON = {"2.11.0": "3.6.0", "2.12.0": "3.6.0", "2.13.0": "3.7.0", "2.14.0": "3.8.0"}
LINK = "https://github.com/pytorch/pytorch/compare"

Ask = Callable[..., Said]


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheels")
    for version, triton in TRITON.items():
        write_torch(folder, version, triton=triton)
    write_torch(folder, "2.15.0", requires="absent-package==1")
    for version in set(TRITON.values()):
        write_triton(folder, version)
    return folder


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The environments that the tests of this module share."""
    return tmp_path_factory.mktemp("environments")


@pytest.fixture
def ask(wheels: Path, kept: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Ask:
    monkeypatch.setenv("CTK_ENVIRONMENTS", str(kept))
    monkeypatch.chdir(tmp_path)

    def run(text: str, *options: object) -> Said:
        script = write(tmp_path, "script.py", text)
        return ctk("bisect-version", script, "--index", wheels, *options)

    return run


def test_the_first_bad_release_and_who_did_it(ask: Ask) -> None:
    said = ask(script_text({"2.13.0": 1, "2.14.0": 1}), "--bad", "2.14")
    assert said.code == 1
    assert said.first == (
        "first bad: torch 2.13.0 (good: 2.12.0); with triton 3.6.0 it still fails: torch did it"
    )
    assert f"commits    {LINK}/v2.12.0...v2.13.0" in said.out
    assert "triton     3.6.0 in torch 2.12.0, 3.7.0 in torch 2.13.0" in said.out


def test_triton_did_it(ask: Ask) -> None:
    text = "import sys, torch, triton\nsys.exit(triton.__version__ == '3.8.0')\n"
    said = ask(text, "--bad", "2.14.0", "--json", "--jobs", "2")
    assert said.code == 1
    assert said.data["answer"] == (
        "first bad: torch 2.14.0 (good: 2.13.0); with triton 3.7.0 alone it passes: triton did it"
    )
    assert said.data["release"] == "2.14.0"
    assert said.data["commits"] == f"{LINK}/v2.13.0...v2.14.0"
    assert said.data["triton"]["outcome"] == "good"
    rows = {row["version"]: row for row in said.data["releases"]}
    assert rows["2.14.0"]["exit_code"] == 1
    assert rows["2.14.0"]["triton"] == "3.8.0"


def test_triton_that_did_not_change_is_not_asked(ask: Ask) -> None:
    said = ask(script_text({"2.12.0": 1}), "--good", "2.11", "--bad", "2.12")
    assert said.first == "first bad: torch 2.12.0 (good: 2.11.0)"
    assert "triton     3.6.0 in both: torch did it" in said.out


def test_releases_of_triton(ask: Ask) -> None:
    text = "import sys, torch, triton\nsys.exit(triton.__version__ >= '3.7')\n"
    said = ask(text, "--triton", "--torch", "2.12")
    assert said.code == 1
    assert said.first == "first bad: triton 3.7.0 (good: 3.6.0), with torch 2.12.0"


def test_the_first_good_release(ask: Ask) -> None:
    text = script_text({"2.11.0": 1, "2.12.0": 1})
    said = ask(text, "--good-after", "--good", "2.14.0")
    assert said.code == 1
    assert said.first.startswith("first good: torch 2.13.0 (bad: 2.12.0); with triton 3.7.0 it st")
    again = ask(text, "--bad", "2.11.0", "--good", "2.14.0", "--jobs", "3")
    assert again.first == said.first
    assert "note       the search was for the first good release (--good-after, or" in again.out


def test_a_release_without_an_answer_is_skipped(ask: Ask) -> None:
    said = ask(script_text({"2.12.0": 125, "2.13.0": 1, "2.14.0": 1}))
    assert said.code == 125
    assert "after 2.11.0 (good) and at most 2.13.0 (bad); no answer: 2.12.0" in said.first
    assert "2.15.0   unknown   -       cannot tell  does not install:" in said.out
    said = ask(script_text({"2.11.0": 3, "2.14.0": 1}))
    assert said.first.startswith("first bad: torch 2.14.0 (good: 2.13.0)")


def test_no_change(ask: Ask) -> None:
    said = ask(script_text({}), "--bad", "2.14.0")
    assert (said.code, said.first) == (
        0, "no failure: torch 2.14.0 passes (1 release asked)"
    )  # fmt: skip
    said = ask(script_text({}, other=1))
    assert said.code == 1
    assert said.first.startswith("no first bad release: torch 2.11.0 to 2.14.0 fail (2 rel")
    said = ask(script_text({}, other=1), "--good-after")
    assert (said.code, said.first) == (
        125,
        "cannot tell: no answer of torch 2.15.0; torch 2.14.0 fails (1 release asked)",
    )
    said = ask(script_text({}, other=1), "--good-after", "--good", "2.14.0")
    assert (said.code, said.first) == (
        1, "no first good release: torch 2.14.0 fails (1 release asked)"
    )  # fmt: skip
    said = ask(script_text({}, other=125))
    assert (said.code, said.first) == (125, "cannot tell: no release of torch has an answer")


def test_a_whole_table_shows_answers_as_they_are(ask: Ask) -> None:
    said = ask(script_text({"2.11.0": 1, "2.13.0": 1}), "--all", "--bad", "2.14.0", "--json")
    assert said.code == 1
    assert said.data["is_monotone"] is False
    assert [row["outcome"] for row in said.data["releases"]] == ["bad", "good", "bad", "good"]
    assert said.data["answer"] == "no failure in torch 2.14.0; 2.11.0 and 2.13.0 failed"
    said = ask(script_text({"2.11.0": 1, "2.14.0": 1}), "--all", "--bad", "2.14.0")
    assert said.first == ("several changes: torch 2.11.0 and 2.14.0 fail; 2.12.0 and 2.13.0 pass")


def test_named_releases(ask: Ask) -> None:
    said = ask(script_text({"2.14.0": 1}), "--releases", "2.14,2.12.0,9.9", "--json")
    assert [row["version"] for row in said.data["releases"]] == ["2.12.0", "2.14.0", "9.9"]
    assert said.data["before"] == "2.12.0"
    assert said.data["releases"][2]["exit_code"] == 125


def test_a_resumed_search_asks_nothing_again(ask: Ask, tmp_path: Path) -> None:
    log = tmp_path / "log"
    text = f"open({str(log)!r}, 'a').write('.')\n" + script_text({"2.14.0": 1})
    options = "--bad", "2.14.0", "--out", tmp_path / "out"
    first = ask(text, *options)
    asked = len(log.read_text())
    again = ask(text, *options, "--resume", "--json")
    assert again.data["answer"] == first.first
    assert len(log.read_text()) == asked
    other = ask(f"{text}#", *options, "--resume")
    assert other.code == 2


def test_installed_interpreters(ask: Ask, kept: Path, tmp_path: Path) -> None:
    ask(script_text({"2.14.0": 1}), "--good", "2.13.0", "--bad", "2.14.0")
    versions = ("2.14.0", "2.13.0")
    pythons = [next(kept.glob(f"torch-{each}-*/bin/python")) for each in versions]
    script = write(tmp_path, "script.py", script_text({"2.14.0": 1}))
    said = ctk("bisect-version", script, "--python", pythons[0], "--python", pythons[1])
    assert said.code == 1
    assert said.first == f"torch 2.14.0 ({pythons[0]}) fails; torch 2.13.0 ({pythons[1]}) passes"
    said = ctk("bisect-version", script, "--python", pythons[0])
    assert said.code == 2
    assert "at least two" in said.err
    options = "--python", pythons[0], "--python", pythons[1], "--with", "numpy"
    said = ctk("bisect-version", script, *options)
    assert said.code == 2
    assert "--triton and --with" in said.err


def test_an_interpreter_without_torch(ask: Ask, kept: Path, tmp_path: Path) -> None:
    ask(script_text({}), "--good", "2.13.0", "--bad", "2.14.0")
    python = next(kept.glob("torch-2.13.0-*/bin/python"))
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", tmp_path / "bare"], check=True)
    bare = tmp_path / "bare" / "bin" / "python"
    script = write(tmp_path, "script.py", script_text({"2.14.0": 1}))
    said = ctk("bisect-version", script, "--python", python, "--python", bare)
    assert said.code == 125
    assert said.first == f"torch 2.13.0 ({python}) passes; no torch ({bare}) has no answer"
    assert "--with" not in said.out


def test_environments_are_removed_after_use(
    ask: Ask, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CTK_ENVIRONMENTS", str(tmp_path / "own"))
    text = script_text({"2.13.0": 1, "2.14.0": 1})
    said = ask(text, "--bad", "2.14.0", "--clean")
    assert said.first.startswith("first bad: torch 2.13.0")
    assert "removed    4 environments, " in said.out
    assert list((tmp_path / "own").iterdir()) == []
    ask(text, "--good", "2.13.0", "--bad", "2.14.0")
    said = ctk("bisect-version", "--clean", "--json")
    assert (said.code, said.data["removed"]["environments"]) == (0, 2)
    assert said.data["removed"]["nbytes"] > 0


def test_environments_are_removed_after_an_error(
    ask: Ask, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CTK_ENVIRONMENTS", str(tmp_path / "own"))

    def fail(*_: object) -> None:
        raise StorageError("the disk is gone")

    monkeypatch.setattr(questions, "ask_script", fail)
    said = ask(script_text({"2.14.0": 1}), "--clean", "--bad", "2.14.0")
    assert "the disk is gone" in said.first
    assert list((tmp_path / "own").iterdir()) == []


def test_an_interpreter_that_changed_is_asked_again(ask: Ask, kept: Path, tmp_path: Path) -> None:
    ask(script_text({"2.14.0": 1}), "--good", "2.13.0", "--bad", "2.14.0")
    link = tmp_path / "python"
    pythons = [next(kept.glob(f"torch-{each}-*/bin/python")) for each in ("2.13.0", "2.14.0")]
    script = write(tmp_path, "script.py", script_text({"2.14.0": 1}))
    options = "--python", pythons[0], "--python", link, "--out", tmp_path / "out", "--json"
    link.write_text(f'#!/bin/sh\nexec {pythons[0]} "$@"\n')
    link.chmod(0o755)
    assert ctk("bisect-version", script, *options).code == 0
    link.write_text(f'#!/bin/sh\nexec {pythons[1]} "$@"\n')
    assert ctk("bisect-version", script, *options, "--resume").code == 1


def test_a_full_disk_ends_the_search(
    ask: Ask, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CTK_ENVIRONMENTS", str(tmp_path / "own"))
    monkeypatch.setattr(module, "free_nbytes", lambda _: 1 << 30)
    for jobs in ("1", "2"):
        said = ask(script_text({"2.14.0": 1}), "--jobs", jobs)
        assert said.code == 125
        assert "too little space for torch==2.1" in said.first


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--good", "2.99"), "pip lists no release 2.99 of torch"),
        (("--good", "2.12", "--bad", "2.12.0"), "are the same release"),
        (("--good-after", "--good", "2.12.0rc1", "--bad", "2.12.0"), "leave out --good-after"),
        (("--good-after", "--good", "2.12", "--bad", "2.13"), "leave out --good-after"),
        (("--releases", "2.12.0", "--good", "2.11"), "--releases names each release"),
        (("--torch", "2.12.0"), "--torch is the torch of --triton"),
        (("--memory", "8G"), "--memory limits no script"),
        (("--with", "-r x"), "is not a requirement of pip"),
        (("--with", "numpy", "--with", "foo =="), "--with 'foo ==' is not a requirement of pip"),
        (("--releases", ""), "--releases '' names no release"),
        (("--releases", " , "), "names no release"),
        (("--clean", "--keep"), "--keep and --clean exclude each other"),
    ],
)
def test_wrong_options(options: tuple[str, ...], message: str, ask: Ask) -> None:
    said = ask(script_text({}), *options)
    assert said.code == 2
    assert message in said.err


def test_a_run_to_resume_is_a_folder(ask: Ask, tmp_path: Path) -> None:
    said = ask(script_text({}), "--resume", "-o", write(tmp_path, "a.txt", ""))
    assert said.code == 2
    assert f"{tmp_path}/a.txt is a file; next: let --out name the folder" in said.err


OF_CTK = GOOD + "def config():\n    return {'numerics': 'strict'}\n"


def test_options_of_ctk_in_a_program_without_a_target(tmp_path: Path) -> None:
    said = ctk("bisect-version", write(tmp_path, "net.py", OF_CTK))
    assert said.code == 2
    assert "names no target, so releases are asked with inductor: target inductor has" in said.err
    assert "takes no option of ctk's own pipeline" in said.err


def test_what_cannot_be_asked(ask: Ask, tmp_path: Path) -> None:
    assert ctk("bisect-version").code == 2
    assert ctk("bisect-version", tmp_path / "absent.py").code == 2
    assert ask("def f(:").code == 2
    said = ask("def model(): ...\n", "--target", "ctk")
    assert said.code == 2


def test_an_emitted_script_knows_a_bad_release(tmp_path: Path) -> None:
    text = '"""Standalone repro: x.\n\nClean run:  reproduced on 2026-11-26 (FAILURE)\n"""\n'
    written = 'print("CANNOT TELL: x; this script was written with torch 2.13.0+cpu")\n'
    assert find_known_bad(write(tmp_path, "a.py", text + written)) == "2.13.0"
    assert find_known_bad(write(tmp_path, "b.py", written)) == ""
    assert VersionOptions().keep


@pytest.mark.parametrize("jobs", ["1", "2"])
def test_ctrl_c_leaves_nothing_and_can_be_resumed(
    jobs: str, ask: Ask, wheels: Path, tmp_path: Path
) -> None:
    ask(script_text({}), "--good", "2.11.0", "--bad", "2.14.0")  # both are installed
    mark, out = f"{tmp_path}/waits", tmp_path / "out"
    text = (
        "import os, subprocess, sys, torch\n"
        "if torch.__version__ == '2.11.0' and not os.path.exists('go'):\n"
        f"    child = subprocess.Popen(['sleep', '100'])\n"
        f"    open({mark!r}, 'w').write(f'{{os.getpid()}} {{child.pid}}')\n    child.wait()\n"
        "sys.exit(torch.__version__ >= '2.14')\n"
    )
    script = write(tmp_path, "waiting.py", text)
    words = ["bisect-version", str(script), "--index", str(wheels), "--bad", "2.14.0", "-j", jobs]
    command = [str(Path(sys.executable).parent / "ctk"), *words, "--out", str(out), "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        while not Path(mark).exists() or not _answers(out):
            assert process.poll() is None
            time.sleep(0.05)
        process.send_signal(signal.SIGINT)
        data = json.loads(process.communicate(timeout=60)[0])
    assert data["exit_code"] == 125
    assert any("--resume" in note for note in data["error"]["notes"])
    while any(is_alive(int(pid)) for pid in Path(mark).read_text().split()):
        time.sleep(0.05)  # until they are reaped; the test has a limit
    assert _answers(out) == 1  # the one that was killed is not noted
    write(tmp_path, "go", "")
    said = ctk(*words, "--out", out, "--resume", "--json")
    assert said.data["answer"].startswith("first bad: torch 2.14.0 (good: 2.13.0)")


def _answers(out: Path) -> int:
    journal = out / "journal.jsonl"
    return journal.read_text().count('"VersionAnswer"') if journal.exists() else 0
