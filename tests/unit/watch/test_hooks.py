"""The hooks on compiles that work: what is saved, options, install, the environment."""

import json
import logging
from pathlib import Path

import pytest
import torch

from ctk.compiler.errors import ConfigError, TargetError
from ctk.compiler.torch_compat.dynamo import dynamo_api as dynamo
from ctk.toolkit.case.store import load_case
from ctk.toolkit.case.usercode.references import json_options, reference_to
from ctk.toolkit.execution.execute import run_eager
from ctk.toolkit.watch.hooks import debug_compile, install
from ctk.toolkit.watch.watch_session import WatchOptions, WatchSession
from tests.helpers.faulty_backends import (
    fails_to_compile,
    folders,
    good,
    load_manifest,
    manifest,
    model,
    name_of,
    only_folder,
    run_python,
    takes_options,
    wrong,
)


@pytest.fixture
def log(caplog: pytest.LogCaptureFixture):
    caplog.set_level(logging.WARNING)
    return lambda: [r.getMessage() for r in caplog.records if r.name.startswith("ctk")]


@pytest.mark.parametrize("check", ["off", "output", "pass"])
def test_a_good_compile_is_saved_and_silent(tmp_path: Path, log, check: str):
    x = torch.randn(4, requires_grad=True)
    compiled = torch.compile(
        model, backend=debug_compile(good, dump=tmp_path, check=check, inputs="full")
    )
    for _ in range(2):
        assert torch.equal(compiled(x), model(x))
    assert log() == []
    case = load_case(only_folder(tmp_path), trust=True)
    assert case.signature is None and case.target == name_of(good)
    results = run_eager(case).values
    assert torch.equal(results["out0"], model(x).detach())


def test_the_generator_is_left_alone(tmp_path: Path):
    drop = torch.nn.Dropout(0.5)
    x = torch.ones(64)
    torch.manual_seed(1)
    plain = torch.compile(drop, backend=good)(x)
    torch.compiler.reset()
    torch.manual_seed(1)
    watched = debug_compile(good, dump=tmp_path, check="output")
    assert torch.equal(torch.compile(drop, backend=watched)(x), plain)


def test_the_case_is_on_disk_before_the_compiler_runs(tmp_path: Path):
    script = tmp_path / "crash.py"
    script.write_text(
        "import os, signal, torch\nfrom ctk import debug_compile\n"
        "def crash(gm, inputs):\n    os.kill(os.getpid(), signal.SIGKILL)\n"
        f"backend = debug_compile(crash, dump={str(tmp_path / 'dump')!r})\n"
        "torch.compile(lambda x: x.sin(), backend=backend)(torch.randn(3))\n"
    )
    assert run_python(script).returncode == -9
    folder = only_folder(tmp_path / "dump")
    assert "sin" in str(load_case(folder, trust=True).graph.code)


# --- options ---


def test_options_of_torch_compile_reach_the_backend(tmp_path: Path):
    x = torch.randn(3)
    backend = debug_compile(takes_options, dump=tmp_path)
    compiled = torch.compile(model, backend=backend, options={"plus": 1.0})
    assert torch.equal(compiled(x), model(x) + 1)
    assert manifest(tmp_path)["config"] == {"plus": 1.0}


def test_bad_options():
    with pytest.raises(ConfigError, match="not 'outputs'; did you mean 'output'"):
        debug_compile("ctk", check="outputs")  # type: ignore[arg-type]  # on purpose
    with pytest.raises(ConfigError, match=r"quota takes a size .*, not 'much'"):
        debug_compile("ctk", quota="much")
    with pytest.raises(TargetError, match="did you mean 'inductor'"):
        debug_compile("inducter")
    with pytest.raises(ConfigError):
        debug_compile("ctk", config={"codegenn": "eager"})


def test_arguments_win_over_variables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("CTK_DUMP", str(tmp_path / "variable"))
    torch.compile(model, backend=debug_compile(good))(torch.randn(3))
    assert only_folder(tmp_path / "variable")
    torch.compiler.reset()
    torch.compile(model, backend=debug_compile(good, dump=tmp_path / "argument"))(torch.randn(3))
    assert only_folder(tmp_path / "argument")


def test_nothing_of_the_inputs_is_kept_on_request(tmp_path: Path, log):
    backend = debug_compile(fails_to_compile, dump=tmp_path, inputs="none", on_failure="fallback")
    torch.compile(model, backend=backend)(torch.full((3,), 0.123))
    assert "CTK_INPUTS=recipe or full" in log()[0]
    assert not list(tmp_path.rglob("inputs.safetensors"))


def test_modes_are_those_of_the_call(tmp_path: Path):
    with torch.inference_mode():
        torch.compile(model, backend=debug_compile(good, dump=tmp_path))(torch.randn(3))
    assert manifest(tmp_path)["modes"]["inference"]


def test_the_quota_is_kept(tmp_path: Path, log):
    script = tmp_path / "job.py"
    script.write_text(
        "import torch\nfrom ctk import debug_compile\n"
        f"backend = debug_compile('eager', dump={str(tmp_path / 'dump')!r})\n"
        "torch.compile(lambda x: x.sin(), backend=backend)(torch.randn(3))\n"
    )
    run_python(script)
    old = only_folder(tmp_path / "dump").parent
    backend = debug_compile(good, dump=tmp_path / "dump", quota=2000)
    torch.compile(model, backend=backend)(torch.randn(3))
    assert not old.exists()
    assert any(f"removed the old dump {old}" in message for message in log())


def test_each_process_has_its_own_folder(tmp_path: Path):
    session = WatchSession(WatchOptions(dump=tmp_path))
    other = WatchSession(WatchOptions(dump=tmp_path))
    assert session.folder == session.folder != other.folder
    session._pid = 1  # what a forked child finds
    before = other.folder
    assert session.folder not in (before, None)
    assert len(list(tmp_path.iterdir())) == 3


def test_names_of_functions():
    assert reference_to(json.loads) == "json:loads"
    assert reference_to(good) == name_of(good)
    assert reference_to(lambda: 0) is None
    kept, lost = json_options({"a": [json.loads], "b": lambda: 0, "c": (1, {"d": None})})
    assert kept == {"a": ["json:loads"], "c": [1, {"d": None}]} and lost == ("b",)


# --- install and the environment ---


def test_install_watches_every_backend_and_uninstall_ends_it(tmp_path: Path):
    x = torch.randn(3)
    handle = install(dump=tmp_path)
    try:
        assert install(dump=tmp_path) is handle
        with pytest.raises(ConfigError, match="installed already"):
            install(dump=tmp_path, check="output")
        assert torch.equal(torch.compile(model, backend="aot_eager")(x), model(x))
        assert torch.equal(torch.compile(model, backend=good)(x), model(x))
        backend = takes_options
        torch.compile(model, backend=backend, options={"plus": 1})(x)
        torch.compile(model, backend=backend, options={"plus": 1})(x)  # compiled already
        torch.compile(model, backend=debug_compile(good, dump=tmp_path / "own"))(x)
    finally:
        handle.uninstall()
    handle.uninstall()
    assert dynamo.backend_lookup_owner() is None
    torch.compiler.reset()
    torch.compile(model, backend="aot_eager")(x)
    targets = [load_manifest(path)["target"] for path in folders(handle.session.folder)]
    assert targets == ["aot_eager", name_of(good), name_of(takes_options)]
    assert load_manifest(folders(handle.session.folder)[2])["config"] == {"plus": 1}
    assert handle.session.graphs == 3
    assert len(folders(tmp_path / "own")) == 1


def test_install_does_not_break_a_backend_with_modes(tmp_path: Path):
    def moded(gm, example_inputs, mode="none"):
        return lambda *args: tuple(value + len(mode) for value in gm(*args))

    x = torch.randn(3)
    with install(dump=tmp_path):
        assert torch.equal(torch.compile(model, backend=moded, mode="four")(x), model(x) + 4)


# Importing Inductor uses parts of torch that torch itself deprecated.
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_install_watches_inductor_with_its_options(tmp_path: Path):
    x = torch.randn(3)
    with install(dump=tmp_path, check="output"):
        compiled = torch.compile(model, options={"max_fusion_size": 16})
        torch.testing.assert_close(compiled(x), model(x))
    found = manifest(tmp_path)
    assert (found["target"], found["config"]) == ("inductor", {"max_fusion_size": 16})
    assert list(only_folder(tmp_path).glob("kernels/*.py"))
    assert (only_folder(tmp_path) / "stages" / "00_captured.py").exists()


CTK_SCRIPT = """
import torch
x = torch.randn(3)
compiled = torch.compile(lambda t: (t * 2).sin(), backend="ctk")
torch.testing.assert_close(compiled(x), (x * 2).sin())
"""


def test_the_variables_suffice_for_the_ctk_backend(tmp_path: Path):
    script = tmp_path / "script.py"
    script.write_text(CTK_SCRIPT)
    done = run_python(script, CTK_DUMP=tmp_path / "dump", CTK_CHECK="pass", CTK_DISABLE="cse")
    assert done.returncode == 0, done.stderr
    folder = only_folder(tmp_path / "dump")
    assert folder.parent.name.startswith("script_")
    assert load_manifest(folder)["target"] == "ctk"
    assert load_manifest(folder)["config"] == {"disable": ["cse"]}
    assert (folder / "events.jsonl").exists()


def test_nothing_is_written_or_loaded_without_variables(tmp_path: Path):
    script = tmp_path / "script.py"
    script.write_text(
        CTK_SCRIPT
        + "import sys\nassert not [m for m in sys.modules if m.startswith('ctk.toolkit')]\n"
    )
    done = run_python(script, is_clean=True)
    assert done.returncode == 0, done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["script.py"]


def test_a_wrong_variable_is_told(tmp_path: Path):
    script = tmp_path / "script.py"
    script.write_text(CTK_SCRIPT)
    done = run_python(script, CTK_CHECK="outputs")
    assert done.returncode == 1
    assert "CTK_CHECK takes off, output or pass, not 'outputs'" in done.stderr


def test_importing_the_toolkit_is_light():
    code = "import sys, ctk; assert 'torch' not in sys.modules; ctk.install"
    assert run_python("-c", code, is_clean=True).returncode == 0


def test_what_is_no_target_and_what_is_no_option_is_told_at_once() -> None:
    with pytest.raises(TargetError, match="debug_compile: int 3 is not a target"):
        debug_compile(3)  # type: ignore[arg-type]  # on purpose
    with pytest.raises(TypeError, match=r"debug_compile\(\) has no option 'chek'; did you mean"):
        debug_compile(chek="output")  # type: ignore[call-arg]  # on purpose
    with pytest.raises(TypeError, match=r"debug_compile\(\) has no option 'confg'; did you mean"):
        debug_compile(confg={})  # type: ignore[call-arg]  # on purpose
    with pytest.raises(TypeError, match=r"install\(\) has no option 'quotas'; did you mean"):
        install(quotas="1G")  # type: ignore[call-arg]  # on purpose


def test_a_failure_counts_though_the_working_folder_is_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dumps, gone = tmp_path / "dumps", tmp_path / "gone"
    gone.mkdir()
    torch.compiler.reset()  # the import of Dynamo reads the working folder
    monkeypatch.chdir(gone)
    gone.rmdir()
    with install(dump=dumps, on_failure="record", check="output") as hooks:
        torch.compile(model, backend=wrong)(torch.ones(4))
        torch.compile(torch.relu, backend="ctk")(torch.ones(1))
        assert [failure.graph for failure in hooks.session.failures] == ["graph0"]
        assert hooks.session.checked == 2


def test_instructions_are_logged_once_where_nothing_fails(tmp_path, caplog):
    backend = debug_compile("aot_eager", dump=tmp_path, instructions=True)
    for size in (2, 3):
        torch.compile(lambda x: x.sin() + 1, backend=backend, dynamic=False)(torch.ones(size))
    (line,) = [each for each in caplog.messages if "are saved in" in each]
    (folder,) = tmp_path.iterdir()
    assert line.splitlines() == [
        f"ctk: the graphs of target aot_eager are saved in {folder}",
        f"  list them:  ctk ls {folder}",
        f"  compare:    ctk check {folder / 'graph0'}",
    ]
