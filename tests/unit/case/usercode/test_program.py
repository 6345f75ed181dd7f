"""load_program: what it takes, and what it says of a file that it cannot use."""

import sys
from pathlib import Path

import pytest
import torch

from ctk.compiler.errors import ProgramError
from ctk.toolkit.case.usercode.program import load_program, parse_spec

GOOD = """
import torch
import helper_of_program
loaded_as = __name__
class Model(torch.nn.Module):
    def forward(self, x, *, scale=1.0):
        return x * scale
def model():
    return Model()
def inputs():
    return (torch.randn(2, 3),)
def build():
    import late_helper
    return lambda x: x + late_helper.ONE
def example():
    return torch.ones(2)
def keywords():
    return {"x": torch.ones(2), "scale": 2.0}
if __name__ == "__main__":
    raise SystemExit("run as a script")
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "good.py").write_text(GOOD)
    (tmp_path / "helper_of_program.py").write_text("")
    (tmp_path / "late_helper.py").write_text("ONE = 1")
    return tmp_path


@pytest.fixture(autouse=True)
def forget_modules():
    before = set(sys.modules)
    yield
    for name in set(sys.modules) - before:
        if "program" in name or "helper" in name:
            del sys.modules[name]


def write(folder: Path, text: str) -> str:
    path = folder / "prog.py"
    path.write_text(text)
    return str(path)


def test_model_and_inputs(folder: Path):
    path_before = list(sys.path)
    program = load_program(str(folder / "good.py"))
    assert isinstance(program.model, torch.nn.Module)
    assert [type(value) for value in program.inputs] == [torch.Tensor]
    assert (program.name, program.path) == ("good", folder / "good.py")
    assert program.config == {} and program.kwargs == {}
    assert sys.path == path_before


def test_other_names_a_tensor_and_a_late_import(folder: Path):
    program = load_program(f"{folder}/good.py:build,example")
    assert torch.equal(program.model(*program.inputs), torch.full((2,), 2.0))


def test_a_dict_gives_keywords(folder: Path):
    program = load_program(f"{folder}/good.py:model,keywords")
    assert program.inputs == ()
    assert torch.equal(program.model(**program.kwargs), torch.full((2,), 2.0))


def test_inputs_are_the_same_every_time_and_the_generator_is_left_alone(folder: Path):
    state = torch.get_rng_state()
    first, second = (load_program(str(folder / "good.py")).inputs[0] for _ in range(2))
    assert torch.equal(first, second)
    assert torch.equal(state, torch.get_rng_state())


def test_two_loads_are_two_modules(folder: Path):
    first, second = (load_program(str(folder / "good.py")).model for _ in range(2))
    assert type(first).__module__ != type(second).__module__
    assert sys.modules[type(first).__module__] is not sys.modules[type(second).__module__]


def test_config(folder: Path):
    text = "import torch\ndef model(): return torch.relu\ndef inputs(): return torch.ones(2)\n"
    spec = write(folder, text + "def config(): return {'fuel': 3}\n")
    assert load_program(spec).config == {"fuel": 3}
    spec = write(folder, text + "def config(): return {'fuel': print}\n")
    with pytest.raises(ProgramError, match="JSON values"):
        load_program(spec)
    spec = write(folder, text + "def config(): return [1]\n")
    with pytest.raises(ProgramError, match="returned a list; expected a dict"):
        load_program(spec)


def test_an_imported_name_called_config_is_no_config_function(folder: Path):
    text = "import torch\nfrom torch._dynamo import config\n"
    text += "def model(): return torch.relu\ndef inputs(): return torch.ones(2)\n"
    assert load_program(write(folder, text)).config == {}


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ("goood.py", "no such file: goood.py"),
        ("model.txt", "'model.txt' is no program; a program is FILE.py or FILE.py:build,example"),
        ("good.py:,example", "names no function that builds the model"),
    ],
)
def test_bad_specs(folder: Path, monkeypatch: pytest.MonkeyPatch, spec: str, said: str):
    monkeypatch.chdir(folder)
    with pytest.raises(ProgramError) as raised:
        parse_spec(spec)
    assert said in str(raised.value)


def test_a_file_that_is_nearly_named(folder: Path):
    with pytest.raises(ProgramError, match=r"did you mean 'good\.py'"):
        parse_spec(f"{folder}/goood.py")


def test_only_the_first_name_given(folder: Path):
    assert parse_spec(f"{folder}/good.py:build") == (folder / "good.py", "build", "inputs")


RUNS = "def model(): return abs\ndef inputs(): return (1,)\n"

FAILING = {
    "no function": (
        "def modle(): pass\n",
        "no function model(); did you mean 'modle'?; it has modle()",
    ),
    "no functions at all": ("x = 1\n", "it has no functions"),
    "syntax": ("def model(:\n", "SyntaxError"),
    "raises on load": (
        "import torch\n1 / 0\n",
        "ZeroDivisionError: division by zero\n  prog.py, line 2: 1 / 0",
    ),
    "exits on load": ("raise SystemExit(3)\n", "SystemExit: 3"),
    "missing import": ("import no_such_module_at_all\n", "No module named 'no_such_module_at_all'"),
    "raises in model": (
        "def model():\n    return [][1]\ndef inputs(): return ()\n",
        "model() in prog.py raised IndexError: list index out of range\n"
        "  prog.py, line 2: return [][1]",
    ),
    "not callable": (
        "def model(): return 3\ndef inputs(): return ()\n",
        "returned an int; it must",
    ),
    "a message that cannot be read": (
        "class E(Exception):\n    def __str__(self): raise RuntimeError\ndef model(): raise E\n"
        "def inputs(): return ()\n",
        "model() in prog.py raised E: its message cannot be read: RuntimeError",
    ),
    "text for a number": (
        f"{RUNS}CONFIG = {{'torch._inductor.config.freezing': 'yes'}}\n",
        "CONFIG in prog.py: torch._inductor.config.freezing cannot be 'yes'",
    ),
    "a module for a setting": (
        f"{RUNS}CONFIG = {{'torch._inductor.config': 3}}\n",
        "CONFIG in prog.py: torch has no setting torch._inductor.config",
    ),
    "text for a flag of torch.compile": (
        f"{RUNS}COMPILE = {{'dynamic': 'yes'}}\n",
        "COMPILE in prog.py: dynamic cannot be 'yes'",
    ),
    "a backend beside other keywords": (
        f"{RUNS}COMPILE = {{'dynamic': True, 'backend': 'inductor'}}\n",
        "COMPILE in prog.py: 'backend' is not a keyword here; name it with --target",
    ),
    "bad inputs": (
        "def model(): return abs\ndef inputs(): return [1]\n",
        "returned a list; it must return a tuple",
    ),
}


@pytest.mark.parametrize(
    ("between", "said"),
    [("(m): 1 / 0", "ZeroDivisionError"), ("(): pass", "takes 0 positional"), ("(m): exit()", "")],
)
def test_what_between_raises_is_its_own(folder: Path, between: str, said: str):
    found = load_program(write(folder, f"{RUNS}def between{between}\n")).between
    assert found is not None
    with pytest.raises(ProgramError, match=rf"between\(\) in prog\.py raised .*{said}"):
        found(abs)


def test_settings_that_take_more_than_one_type(folder: Path):
    wanted = {
        "torch._dynamo.config.optimize_ddp": "python_reducer",
        "torch._inductor.config.cpp.threads": 1,
        "torch.backends.cudnn.benchmark": True,
    }
    assert load_program(write(folder, f"{RUNS}CONFIG = {wanted}\n")).settings == wanted


@pytest.mark.parametrize("name", FAILING)
def test_failing_files(folder: Path, name: str):
    text, said = FAILING[name]
    with pytest.raises(ProgramError) as raised:
        load_program(write(folder, text))
    assert said in str(raised.value)
    assert "toolkit" not in str(raised.value)


LIBRARY = """
import torch
lib = torch.library.Library("ctk_loaded_twice", "FRAGMENT")
lib.define("f(Tensor x) -> Tensor")
lib.impl("f", lambda x: x + 1, "CPU")
lib.impl("f", torch.empty_like, "Meta")
def model():
    return torch.ops.ctk_loaded_twice.f
def inputs():
    return (torch.ones(2),)
"""


def test_a_file_that_registers_operators_can_be_loaded_again(tmp_path: Path) -> None:
    file = tmp_path / "registers.py"
    file.write_text(LIBRARY)
    for _ in range(2):
        program = load_program(str(file))
        assert torch.equal(program.model(*program.inputs), torch.full((2,), 2.0))
    other = tmp_path / "other.py"
    other.write_text(LIBRARY)
    with pytest.raises(ProgramError, match="multiple times"):
        load_program(str(other))


def test_a_file_that_defines_a_namespace_is_run_twice(tmp_path: Path):
    path = tmp_path / "registering_program.py"
    path.write_text(REGISTERING)
    first, second = load_program(str(path)), load_program(str(path))
    assert first.model is not second.model
    assert torch.equal(second.model(*second.inputs), 2 * first.inputs[0])
    path.write_text("1 / 0")
    with pytest.raises(ProgramError, match="ZeroDivisionError"):
        load_program(str(path))


REGISTERING = """
import torch
LIBRARY = torch.library.Library("registering_program", "DEF")
LIBRARY.define("twice(Tensor x) -> Tensor")
LIBRARY.impl("twice", lambda x: x * 2, "CompositeImplicitAutograd")
def model():
    return lambda x: torch.ops.registering_program.twice(x)
def inputs():
    return (torch.ones(2),)
"""
