"""`ctk run`: a script runs as it would alone, watched; and a real model in training."""

import logging
import sys
from pathlib import Path

import pytest
import torch

from ctk.compiler.errors import MiscompileError, ProgramError
from ctk.compiler.torch_compat.dynamo import dynamo_api as dynamo
from ctk.toolkit.case.store import load_case
from ctk.toolkit.execution.execute import run_eager
from ctk.toolkit.watch.hooks import debug_compile
from ctk.toolkit.watch.script import run_script
from tests.helpers.faulty_backends import folders, manifest, only_folder


@pytest.fixture
def log(caplog: pytest.LogCaptureFixture):
    caplog.set_level(logging.WARNING)
    return lambda: [r.getMessage() for r in caplog.records if r.name.startswith("ctk")]


def script_of(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "script.py"
    path.write_text(text)
    (tmp_path / "beside_the_script.py").write_text("VALUE = 3")
    return path


def test_a_script_runs_as_it_would_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    script = script_of(
        tmp_path,
        "import sys, torch, beside_the_script\n"
        "if __name__ == '__main__':\n"
        "    torch.compile(lambda x: x + 1, backend='eager')(torch.ones(2))\n"
        "    print(sys.argv[1:], beside_the_script.VALUE)\n"
        "    sys.exit(int(sys.argv[1]))\n",
    )
    argv, path = sys.argv, list(sys.path)
    summary = run_script(script, ["3", "--flag"], dump=tmp_path / "dump")
    assert capsys.readouterr().out == "['3', '--flag'] 3\n"
    assert (summary.exit_code, summary.graphs, summary.failures) == (3, 1, ())
    assert summary.folder is not None and only_folder(tmp_path / "dump").parent == summary.folder
    assert summary.folder.name.startswith("script_")
    assert (sys.argv, sys.path) == (argv, path)
    assert dynamo.backend_lookup_owner() is None


def test_a_script_that_raises_keeps_its_traceback(tmp_path: Path):
    script = script_of(tmp_path, "def f():\n    raise KeyError('mine')\nf()\n")
    summary = run_script(script, dump=tmp_path / "dump")
    assert isinstance(summary.error, KeyError) and summary.exit_code == 1
    frames = []
    trace = summary.error.__traceback__
    while trace is not None:
        frames.append(trace.tb_frame.f_code.co_filename)
        trace = trace.tb_next
    assert frames == [str(script), str(script)]
    assert (summary.graphs, summary.folder) == (0, None)
    assert not (tmp_path / "dump").exists()


def test_failures_of_a_script_are_counted(tmp_path: Path):
    script = script_of(
        tmp_path,
        "import torch\n"
        "def bad(gm, inputs):\n    return lambda *args: tuple(v + 1 for v in gm(*args))\n"
        "torch.compile(lambda x: x.sin(), backend=bad)(torch.ones(2))\n",
    )
    summary = run_script(script, dump=tmp_path / "dump", check="output")
    assert isinstance(summary.error, MiscompileError)
    (failure,) = summary.failures
    assert failure.graph == "graph0" and failure.folder == only_folder(tmp_path / "dump")
    assert "accuracy" in failure.summary
    assert manifest(tmp_path / "dump")["target"] == "sources/script.py:bad"
    assert "--trust" in str(summary.error)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_exit_codes(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    for text, code in (
        ("", 0),
        ("import sys; sys.exit('bye')", 1),
        ("import sys; sys.exit(259)", 3),
        ("import sys, threading\nthreading.Thread(target=sys.exit, args=(5,)).start()", 0),
        ("raise KeyboardInterrupt", 130),
    ):
        assert run_script(script_of(tmp_path, text), dump=tmp_path / "d").exit_code == code
    assert capsys.readouterr().err == "bye\n"


def test_a_script_that_compiles_nothing_says_why(tmp_path: Path):
    for text, reason in (
        ("print()", "never calls torch.compile"),
        (
            "import torch\ndef f(x):\n    torch._dynamo.graph_break()\n    return x\n"
            "torch.compile(f, backend='eager')(torch.ones(2))\n",
            "script.py:3 in f: Call to `torch._dynamo.graph_break()`",
        ),
        (
            "import torch\ndef f(n):\n    return n\ntorch.compile(f, backend='eager')(2)\n",
            "script.py:2 in f: ",
        ),
    ):
        summary = run_script(script_of(tmp_path, text), dump=tmp_path / "d")
        assert summary.graphs == 0 and reason in summary.why[0]
        torch.compiler.reset()


def test_threads_of_a_script_are_watched_to_their_end(tmp_path: Path):
    text = (
        "import threading, time, torch\n"
        "f = torch.compile(lambda x: x + 1, backend='eager')\n"
        "def late():\n    time.sleep(0.5)\n    f(torch.ones(2))\n"
        "threading.Thread(target=late).start()\n"
    )
    summary = run_script(script_of(tmp_path, text), dump=tmp_path / "d", check="output")
    assert (summary.graphs, summary.checked, summary.calls.made) == (1, 1, 1)


def test_a_module_runs_as_python_m_runs_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    package = tmp_path / "some_package"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "__main__.py").write_text("import sys\nprint(sys.argv[1:])\nsys.exit(4)\n")
    monkeypatch.chdir(tmp_path)
    summary = run_script("some_package", ["a"], is_module=True, dump=tmp_path / "d")
    assert summary.exit_code == 4
    with pytest.raises(ProgramError, match="no module named 'no_such_package'"):
        run_script("no_such_package.part", is_module=True)


# --- a real model ---


class Encoder(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        layer = torch.nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True)
        self.encoder = torch.nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = torch.nn.Linear(8, 4)
        self.register_buffer("table", torch.arange(8.0))

    def forward(self, x):
        h = self.encoder(x + self.table)
        torch._dynamo.graph_break()
        with torch.no_grad():
            scale = h.std() + 1
        h = torch.cond(h.square().sum() > 0, lambda t: t.sin(), lambda t: t.cos(), (h,))
        return self.head(h / scale)


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf")
def test_training_a_real_model_with_ctk(tmp_path: Path, log):
    torch.manual_seed(0)
    subject, x = Encoder(), torch.randn(3, 5, 8)
    torch._dynamo.mark_dynamic(x, 0)
    eager = Encoder()
    eager.load_state_dict(subject.state_dict())
    backend = debug_compile("ctk", dump=tmp_path, check="output", inputs="full")
    result, expected = torch.compile(subject, backend=backend)(x), eager(x)
    torch.testing.assert_close(result, expected)
    result.sum().backward()
    expected.sum().backward()
    for mine, theirs in zip(subject.parameters(), eager.parameters(), strict=True):
        torch.testing.assert_close(mine.grad, theirs.grad, rtol=1e-4, atol=1e-5)
    assert [path.name for path in folders(tmp_path)] == ["graph0", "graph1"]
    first, second = (load_case(path) for path in folders(tmp_path))
    assert any(size is not None for sizes in first.dynamic.values() for size in sizes)
    for folder in folders(tmp_path):
        stages = sorted(path.name for path in (folder / "stages").iterdir())
        assert stages[:2] == ["00_captured.py", "01_pre_grad.py"]
        assert any(name.endswith("_backward.py") for name in stages)
        assert list((folder / "passes").glob("*.diff"))
    hidden = run_eager(first).values["out0"]
    values = [value for value in second.inputs if isinstance(value, torch.Tensor)]
    assert any(v.shape == hidden.shape and torch.allclose(v, hidden, atol=1e-6) for v in values)
    assert not [message for message in log() if "fails with target" in message]
