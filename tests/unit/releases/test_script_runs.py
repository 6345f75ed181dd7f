"""One script, its end, and the answer that this stands for."""

import sys
from pathlib import Path

import pytest

from ctk.compiler.errors import ConfigError
from ctk.toolkit.releases.interpreters import Interpreter, find_interpreter, read_versions
from ctk.toolkit.releases.script_runs import ask_script
from tests.helpers.cli import write

HERE = Interpreter(Path(sys.executable))


def outcome_of(folder: Path, text: str) -> tuple[str, str]:
    answer = ask_script(write(folder, "script.py", text), HERE, seconds=20)
    return answer.outcome, answer.reason


LOGGING = """
import sys
print("the reason", file=sys.stderr)
print("No CUDA runtime is found, using CUDA_HOME='/usr'", file=sys.stderr)
where = "torch/utils/cpp_extension.py:183"
print(f"W1126 23:44:15.539000 415 {where}] No CUDA runtime is found", file=sys.stderr)
sys.exit(3)
"""


@pytest.mark.parametrize(
    ("text", "outcome", "reason"),
    [
        ("", "good", "exit code 0"),
        ("raise SystemExit(1)", "bad", "exit code 1"),
        ("assert 1 == 2", "bad", "exit code 1"),
        ("raise SystemExit(125)", "cannot tell", "exit code 125"),
        ("raise SystemExit(3)", "cannot tell", "exit code 3"),
        ("import os; os.abort()", "cannot tell", "signal SIGABRT"),
        (LOGGING, "cannot tell", "exit code 3: the reason"),
        ("import absent_module", "cannot tell", "No module named 'absent_module'"),
        ("raise AttributeError(\"module 'torch' has no attribute 'x'\")", "cannot tell", "'x'"),
        ("import torch; torch.ops.aten.absent", "cannot tell", "no attribute 'absent'"),
        ("import torch; torch.ops.aten.add.absent", "cannot tell", "no overload name 'absent'"),
        ("import torch._dynamo as d; d.config.absent = 1", "cannot tell", "absent does not exist"),
        ("raise AttributeError('mine')", "bad", "exit code 1"),
        ("print('FAILURE: accuracy'); raise SystemExit(1)", "bad", "FAILURE: accuracy"),
        (
            "print('FAILURE: another failure: x'); raise SystemExit(1)",
            "cannot tell",
            "FAILURE: another failure: x",
        ),
        ("print('NO FAILURE: equal')", "good", "NO FAILURE: equal"),
        ("print('CANNOT TELL: x'); raise SystemExit(125)", "cannot tell", "CANNOT TELL: x"),
        ("def end_without_verdict(): ...\nraise SystemExit(1)", "cannot tell", "exit code 1"),
    ],
)
def test_the_end_of_a_script(text: str, outcome: str, reason: str, tmp_path: Path) -> None:
    seen = outcome_of(tmp_path, text)
    assert seen[0] == outcome
    assert reason in seen[1]


def test_a_script_that_does_not_end(tmp_path: Path) -> None:
    answer = ask_script(write(tmp_path, "a.py", "import time; time.sleep(60)"), HERE, seconds=0.5)
    assert answer.outcome == "cannot tell"
    assert "within 0.5 s" in answer.reason


def test_modules_beside_a_script_and_its_own_caches(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path, "beside.py", "import os, pathlib\n")
    monkeypatch.setenv("PYTHONPATH", "/leaked")
    monkeypatch.setenv("TORCH_LOGS", "+dynamo")
    text = (
        "import os, sys, beside\n"
        "assert '/leaked' not in sys.path and 'TORCH_LOGS' not in os.environ\n"
        "print('FAILURE:', os.environ['TORCHINDUCTOR_CACHE_DIR'], os.environ['TRITON_CACHE_DIR'])\n"
        "sys.exit(1)\n"
    )
    first, second = outcome_of(tmp_path, text), outcome_of(tmp_path, text)
    assert (first[0], second[0]) == ("bad", "bad")
    assert first[1] != second[1]
    assert not any(Path(word).exists() for word in first[1].split()[1:])


def test_the_versions_of_an_interpreter() -> None:
    import torch

    versions = read_versions(find_interpreter(sys.executable))
    assert versions.torch.partition("+")[0] == torch.__version__.partition("+")[0]
    assert versions.commit == torch.version.git_version


def test_what_is_not_an_interpreter(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="there is no program"):
        find_interpreter(str(tmp_path))
    program = write(tmp_path, "program", "#!/bin/sh\necho hello\n")
    program.chmod(0o755)
    with pytest.raises(ConfigError, match=r"does not print its versions \(exit code 0\); next: "):
        read_versions(find_interpreter(str(program)))
    program.write_text("#!/bin/sh\nexec sleep 100\n")
    with pytest.raises(ConfigError, match=r"\(no end within 0\.2 s\)"):
        read_versions(find_interpreter(str(program)), 0.2)
