"""Every error that a user can meet has a code, and every code a page with cause and remedy."""

import ast
import importlib
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
import typer

from ctk.compiler import errors
from ctk.compiler.errors import CtkError
from ctk.toolkit.cli.shell.answer import ExitCode
from ctk.toolkit.cli.shell.error_codes import ENDED, ERROR_CODES, TORCH, USAGE, ErrorCode, code_of
from ctk.toolkit.cli.shell.errors import answer_for
from tests.helpers.cli import ctk, write
from tests.helpers.project import PACKAGES, ROOT, python_files, tree_of
from tests.repo.test_docs_commands import steps_of

INTERNAL = {
    "Cancelled": "a question that is no longer wanted",
    "Endless": "a verdict about a loop of the program",
    "InterpretError": "a failed comparison of a kernel with its loops",
    "KernelError": "a failure of the compiled program, which is judged",
    "OutOfRange": "an InterpretError",
    "PrecisionRefused": "the program's own dtype is the reference then",
    "Unavailable": "asked again on another machine",
    "Uncacheable": "a compile that is not stored; `ctk cache why` prints the reason",
    "_RunsInEager": "a CaseError about one candidate",
}
"""Exceptions that do not end a command: they are caught, and become answers or log lines."""

UNPROVOKED = {
    "CTK401": errors.UnsupportedPlatform("ctk does not run on Windows"),
    "CTK402": errors.MissingTorchName("torch has no name"),
    "CTK405": MemoryError(),
    "CTK406": errors.LostAccelerator("a kernel breaks CUDA"),
    "CTK901": ZeroDivisionError("division by zero"),
}
"""Errors that no command provokes on each machine: other systems, GPUs, damaged installations."""

WITHOUT_TORCH = """
import sys

class Missing:
    def find_spec(self, name, path=None, target=None):
        if name == "torch":
            raise ModuleNotFoundError("No module named 'torch'", name="torch")

sys.meta_path.insert(0, Missing())
from ctk.toolkit.cli.main import main
main()
"""

each_code = pytest.mark.parametrize("code", ERROR_CODES, ids=lambda code: code.code)


def exceptions() -> dict[str, type[CtkError]]:
    """Return every subclass of `CtkError` in the packages, by name."""
    found: dict[str, type[CtkError]] = {}
    for path in python_files(*PACKAGES):
        for node in tree_of(path).body:
            bases = [ast.unparse(base) for base in getattr(node, "bases", ())]
            if isinstance(node, ast.ClassDef) and any(
                base in found or issubclass(getattr(errors, base, object), CtkError)
                for base in bases
            ):
                module = ".".join(("ctk", *path.relative_to(ROOT).with_suffix("").parts))
                found[node.name] = getattr(importlib.import_module(module), node.name)
    return found


def test_every_exception_has_a_code_or_stays_inside() -> None:
    found = exceptions()
    assert set(INTERNAL) <= set(found)
    bug = code_of(Exception)
    for name, kind in found.items():
        assert name in INTERNAL or code_of(kind) is not bug, f"{name} needs a line in ERROR_CODES"


def test_no_code_says_bare_errors() -> None:
    """`CtkError` itself has no code: a raise of it would be called a bug of ctk."""
    bare = [
        f"{path}:{node.lineno}"
        for path in python_files(*PACKAGES)
        for node in ast.walk(tree_of(path))
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "CtkError"
    ]
    assert not bare


def test_codes_are_unique_and_sorted() -> None:
    codes = [code.code for code in ERROR_CODES]
    assert codes == sorted(set(codes))
    kinds = [kind for code in ERROR_CODES for kind in code.raised]
    assert len(kinds) == len(set(kinds))


def test_the_nearest_class_decides() -> None:
    assert code_of(errors.TrustError).code == "CTK108"  # type: ignore[union-attr]  # it has one
    assert code_of(errors.CaseError).code == "CTK105"  # type: ignore[union-attr]  # it has one
    assert code_of(FileNotFoundError).code == "CTK404"  # type: ignore[union-attr]  # it has one
    assert code_of(typer.BadParameter) is USAGE
    assert code_of(KeyboardInterrupt) is None


@each_code
def test_page_has_cause_and_remedy(code: ErrorCode) -> None:
    page = code.page()
    assert page.startswith(f"# {code.code}: {code.title}\n\n## Cause\n\n")
    assert re.findall(r"^## (.*)$", page, re.MULTILINE)[:2] == ["Cause", "Remedy"]


@each_code
def test_page_provokes_its_error_and_removes_it(code: ErrorCode) -> None:
    """The blocks run in `tests/repo/test_docs_commands.py`; here they are about this code."""
    steps = steps_of(code.page())
    if code is TORCH or code.code in UNPROVOKED:
        assert not steps
        return
    provoking = [
        number
        for number, step in enumerate(steps)
        if code.help in step.shown
        or any(kind.__name__ in "\n".join((step.command, *step.shown)) for kind in code.raised)
    ]
    assert provoking, "no block of the page shows the error"
    remedy = steps[provoking[-1] + 1 :]
    assert remedy, "no block of the page applies the remedy"
    assert not any("help: ctk explain" in line for step in remedy for line in step.shown)


def test_no_page_is_without_a_code() -> None:
    pages = {path.stem for path in (ROOT / "docs" / "errors").glob("*.md")}
    assert pages == {code.code for code in ERROR_CODES}


@pytest.mark.parametrize(("code", "error"), UNPROVOKED.items())
def test_errors_that_no_command_provokes(code: str, error: BaseException) -> None:
    answer = answer_for(error)
    assert answer.data["error"]["code"] == code  # type: ignore[index]  # a mapping of values
    assert str(answer.body[-1]).endswith(f"help: ctk explain {code}")


def test_a_broken_torch_has_a_code() -> None:
    try:
        exec(compile("raise ImportError('libtorch.so')", "torch", "exec"), {"__name__": "torch"})
    except ImportError as error:
        answer = answer_for(error)
    assert (answer.exit_code, answer.body[-1]) == (ExitCode.CANNOT_TELL, TORCH.help)


def test_a_missing_torch_has_a_code() -> None:
    def run(*words: str) -> "subprocess.CompletedProcess[str]":
        command = [sys.executable, "-c", WITHOUT_TORCH, *words]
        return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)

    assert run("--help").returncode == 0
    assert run("explain", TORCH.code).stdout.startswith(f"{TORCH.code}: {TORCH.title}")
    done = run("check", "examples/classifier.py")
    assert done.returncode == ExitCode.CANNOT_TELL
    assert done.stdout.startswith("cannot tell: torch cannot be imported: ModuleNotFoundError: ")
    assert done.stdout.endswith(f"{TORCH.help}\n")


def test_ctrl_c_has_no_code() -> None:
    answer = answer_for(KeyboardInterrupt())
    assert "code" not in answer.data["error"]  # type: ignore[operator]  # a mapping of values
    assert not any("explain" in str(part) for part in answer.body)


def test_json_has_the_code() -> None:
    said = ctk("show", "missing", "--json")
    assert said.data["error"]["code"] == "CTK104"
    assert ctk("chek", "--json").data["error"]["code"] == USAGE.code


def test_quiet_keeps_to_one_line(tmp_path: Path) -> None:
    said = ctk("check", "-q", write(tmp_path, "net.py", "raise ValueError"))
    assert said.out.count("\n") == 1


class TestExplain:
    def test_a_page(self) -> None:
        said = ctk("explain", "ctk104")
        assert (said.code, said.first) == (0, "CTK104: There is no such case")
        assert "## Cause" in said.out and "## Remedy" in said.out
        assert said.out.count("CTK104: There is no such case") == 1

    def test_json(self) -> None:
        data = ctk("explain", ENDED.code, "--json").data
        assert (data["code"], data["title"], data["page"]) == (
            ENDED.code,
            ENDED.title,
            ENDED.page(),
        )

    def test_the_list(self) -> None:
        said = ctk("explain")
        assert [code.code for code in ERROR_CODES] == re.findall(r"^CTK\d+", said.out, re.M)
        assert json.loads(ctk("explain", "--json").out)["codes"][0]["code"] == USAGE.code

    def test_an_unknown_code(self) -> None:
        said = ctk("explain", "CTK140")
        assert said.code == 2
        assert "no error has the code 'CTK140'; list them: ctk explain" in said.err
        assert said.err.rstrip().endswith("help: ctk explain CTK102")


def test_missing_pages_are_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ctk.__path__", [str(tmp_path)])
    said = ctk("explain", "CTK101")
    assert said.code != 0 and "install ctk again" in said.out + said.err
