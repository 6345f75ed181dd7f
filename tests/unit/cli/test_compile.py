"""`ctk compile`, and `ctk show` of what it writes."""

import json
from pathlib import Path

import pytest
import torch

import ctk as library
from ctk.compiler.artifacts.container import open_container, write
from ctk.compiler.packages.package import MANIFEST
from ctk.toolkit.cli.app import COMMANDS
from ctk.toolkit.cli.commands import compile as compile_command
from tests.helpers.cli import ctk

NET = """
import torch

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.linear = torch.nn.Linear(4, 4)

    def forward(self, x, scale=2, *, extra=None):
        y = torch.relu(self.linear(x)) * scale
        return {"y": y, "rows": x.shape[0], "scale": scale, "none": None}

def model():
    return Net().eval()

def inputs():
    return {"x": torch.randn(3, 4), "scale": 3}

def dynamic_shapes():
    return {"x": {0: torch.export.Dim("batch", min=2, max=64)}, "scale": None}
"""

X = torch.linspace(-1, 1, 20).reshape(5, 4)


def expected(folder: Path) -> torch.Tensor:
    from ctk.toolkit.case.usercode.program import load_program

    return load_program(str(folder / "net.py")).model(X, scale=3)["y"].detach()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("compiled")
    (made / "net.py").write_text(NET)
    said = ctk("compile", str(made / "net.py"), "-o", str(made / "net.ctk"), "--json")
    assert said.code == 0, said.out
    assert said.data["entries"] == ["forward"]
    assert said.data["nbytes"] == (made / "net.ctk").stat().st_size
    assert said.data["answer"].startswith(f"{made / 'net.ctk'}: forward; ")
    return made


def test_it_is_a_command() -> None:
    assert compile_command.COMMAND in COMMANDS


def test_the_package_computes_what_the_program_does(folder: Path) -> None:
    package = library.load(folder / "net.ctk")
    result = package(x=X, scale=3)
    torch.testing.assert_close(result.pop("y"), expected(folder))
    assert result == {"rows": 5, "scale": 3, "none": None}
    assert sorted(path.name for path in folder.iterdir() if path.name.startswith(".")) == []


def test_show(folder: Path) -> None:
    said = ctk("show", str(folder / "net.ctk"))
    assert said.code == 0
    assert said.first.startswith("package net.ctk: 1 entry point, ")
    assert said.first.endswith("it runs here")
    rows = [line.split() for line in said.out.splitlines()]
    assert ["in", "x", "float32", "[x.size(0),", "4]", "cpu", "by", "keyword"] in rows
    assert ["in", "scale", "3", "by", "keyword,", "fixed"] in rows
    assert ["out", "['y']", "float32", "[x.size(0),", "4]", "cpu"] in rows
    assert ["out", "['rows']", "int", "x.size(0)"] in rows
    assert ["out", "['none']", "None", "fixed"] in rows
    assert ["linear.weight", "float32", "[4,", "4]", "cpu"] in rows
    assert "sizes that vary: x.size(0) from 2 to 64" in said.out
    data = ctk("show", str(folder / "net.ctk"), "--json").data
    assert data["entries"][0]["inputs"][0] == {
        "name": "x",
        "dtype": "float32",
        "shape": "[x.size(0), 4]",
        "device": "cpu",
        "is_written": False,
    }
    assert data["machine"]["torch"] == torch.__version__.partition("+")[0]


def test_one_for_another_machine_can_be_looked_at(folder: Path, tmp_path: Path) -> None:
    members = dict(open_container(folder / "net.ctk").members)
    manifest = json.loads(bytes(members[MANIFEST]))
    manifest["machine"]["torch"] = "1.0.0"
    write(tmp_path / "old.ctk", {**members, MANIFEST: json.dumps(manifest).encode()})
    said = ctk("show", str(tmp_path / "old.ctk"))
    assert said.code == 0
    assert said.first.endswith("it does not run here")
    assert "was compiled with torch 1.0.0" in said.out


@pytest.mark.parametrize("change", ["cut", "flipped", "malformed", "text"])
def test_a_damaged_one_is_refused(folder: Path, tmp_path: Path, change: str) -> None:
    path, data = tmp_path / "net.ctk", bytearray((folder / "net.ctk").read_bytes())
    if change == "malformed":
        write(path, {MANIFEST: b'{"kind": "package", "format": 1, "weights": {}}'})
    else:
        data[len(data) // 2] ^= 1
        path.write_bytes({"cut": data[:-100], "flipped": data, "text": b"hello\n"}[change])
    said = ctk("show", str(path))
    assert said.code == 2
    assert said.err.startswith((f"ctk: {path} is ", "ctk: net.ctk is malformed"))
    assert "Traceback" not in said.err


def test_show_of_a_file_takes_no_option_of_a_case(folder: Path) -> None:
    assert ctk("show", str(folder / "net.ctk"), "--pass", "1").code == 2


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["none.py"], "no such file: "),
        (["none.pt2"], "no such file: "),
        (["net.txt"], "is no program; a program is FILE.py"),
        (["net.py:nothing,inputs"], "no function nothing()"),
        (["net.py", "-o", "."], "is a folder: name the file: -o net.ctk"),
        (["net.py", "-o", "none/net.ctk"], "no such folder: none"),
        (["net.py", "-o", "net.py"], "net.py exists and is not a package"),
        (["net.py", "net.py"], "two entry points are called 'net'"),
        (["net.py", "-c", "nothing=1"], "nothing"),
        (["net.py", "-c", "nothing"], "is not KEY=VALUE"),
        (["wrong.py"], "fails in eager"),
        (["a=net.py", "b=other.py"], "one set of options"),
    ],
)
def test_refusals(
    folder: Path, monkeypatch: pytest.MonkeyPatch, words: list[str], said: str
) -> None:
    monkeypatch.chdir(folder)
    wrong = "def model():\n    return lambda x: x @ x\n"
    (folder / "wrong.py").write_text(
        f"import torch\n{wrong}def inputs():\n    return torch.ones(2, 3)\n"
    )
    (folder / "other.py").write_text(f'{NET}\ndef config():\n    return {{"fuel": 3}}\n')
    before = sorted(folder.iterdir())
    found = ctk("compile", *words)
    assert found.code == (125 if said == "fails in eager" else 2), found.err
    assert said in found.out + found.err
    assert sorted(path for path in folder.iterdir() if path.name != "__pycache__") == [
        path for path in before if path.name != "__pycache__"
    ]


def test_what_export_cannot_trace(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    branch = "def f(x):\n    return x + 1 if x.sum() > 0 else x - 1\n\ndef model():\n    return f\n"
    (folder / "branch.py").write_text(
        f"import torch\n{branch}def inputs():\n    return torch.ones(3)\n"
    )
    found = ctk("compile", "branch.py")
    assert found.code == 125
    assert "cannot tell: torch.export cannot trace branch.py: " in found.out + found.err
    assert "branch.py, line" in found.out + found.err
    assert not (folder / "branch.ctk").exists()


@pytest.mark.slow
class TestMore:
    def test_archives_as_entry_points(self, folder: Path, tmp_path: Path) -> None:
        class Half(torch.nn.Module):
            def forward(self, x: torch.Tensor) -> torch.Tensor:
                return x * 0.5

        sizes = {"x": {0: torch.export.Dim("rows", min=1, max=9)}}
        program = torch.export.export(Half(), (torch.ones(3, 4),), dynamic_shapes=sizes)
        torch.export.save(program, tmp_path / "half.pt2")
        out = tmp_path / "both.ctk"
        words = [f"half={tmp_path / 'half.pt2'}", f"net={folder / 'net.py'}"]
        assert ctk("compile", *words, "-o", str(out), "--as-tuple").code == 0
        package = library.load(out)
        assert list(package) == ["half", "net"]
        (half,) = package["half"](X)
        assert torch.equal(half, X * 0.5)
        assert type(package["net"](x=X, scale=3)) is tuple
        with pytest.raises(library.CtkError, match="10; the package was compiled for 1 to 9"):
            package["half"](torch.ones(10, 4))

    def test_weights_left_out(self, folder: Path, tmp_path: Path) -> None:
        from ctk.toolkit.case.usercode.program import load_program

        out = tmp_path / "bare.ctk"
        words = ["compile", str(folder / "net.py"), "--weights", "leave-out", "-o", str(out)]
        assert ctk(*words).code == 0
        assert "left out, to be bound" in ctk("show", str(out)).out
        package = library.load(out)
        package.bind(load_program(str(folder / "net.py")).model.state_dict())
        torch.testing.assert_close(package(x=X, scale=3)["y"], expected(folder))

    def test_default_name_marked_sizes_and_dynamic(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.chdir(tmp_path)
        marked = "x = torch.ones(3, 4)\n    torch._dynamo.mark_dynamic(x, 0, min=2, max=8)\n"
        text = f"import torch\ndef model():\n    return torch.sin\ndef inputs():\n    {marked}"
        (tmp_path / "sin.py").write_text(f"{text}    return x\n")
        assert ctk("compile", "sin.py").code == 0
        (entry,) = ctk("show", "sin.ctk", "--json").data["entries"]
        assert [(each["low"], each["high"]) for each in entry["sizes"]] == [(2, 8)]
        assert ctk("compile", "sin.py", "--dynamic").code == 0
        (entry,) = ctk("show", "sin.ctk", "--json").data["entries"]
        assert [each["low"] for each in entry["sizes"]] == [2, 2]
        torch.testing.assert_close(library.load("sin.ctk")(X), X.sin())
