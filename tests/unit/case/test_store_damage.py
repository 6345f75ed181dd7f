"""Damaged and malicious case folders: a clear error each time, and nobody's code runs."""

import dataclasses
import json
import sys
from pathlib import Path

import pytest
import torch

from ctk.compiler.errors import CaseError, TrustError
from ctk.toolkit.case.case import Case
from ctk.toolkit.case.manifest import read_manifest
from ctk.toolkit.case.store import load_case, save_case
from tests.helpers.case_folders import change_manifest, linear_case, rewrite
from tests.helpers.case_zoo import capture, nested_cond


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return save_case(linear_case(), tmp_path / "case", inputs="full")


def test_no_such_folder_suggests_a_near_name(folder: Path) -> None:
    with pytest.raises(CaseError, match=r"no such folder: .*casse.*did you mean 'case'"):
        load_case(folder.parent / "casse")


def test_a_file_is_no_case(folder: Path) -> None:
    with pytest.raises(CaseError, match=r"graph\.json is a file, not a folder"):
        load_case(folder / "graph.json")


def test_a_folder_without_manifest_is_no_case(tmp_path: Path) -> None:
    with pytest.raises(CaseError, match=r"no manifest\.json"):
        load_case(tmp_path)


def test_the_manifest_itself_names_its_folder(folder: Path) -> None:
    assert load_case(folder / "manifest.json").name == "graph0"


def test_a_manifest_cut_anywhere_is_a_case_error(folder: Path) -> None:
    path = folder / "manifest.json"
    whole = path.read_bytes()
    for size in [*range(0, len(whole) - 2, 7), len(whole) - 2]:
        path.write_bytes(whole[:size])
        with pytest.raises(CaseError, match="half-written or damaged"):
            load_case(folder)


@pytest.mark.parametrize("name", ["graph.json", "inputs.json", "inputs.safetensors", "graph.py"])
def test_a_missing_cut_or_changed_file_is_a_case_error(folder: Path, name: str) -> None:
    path = folder / name
    whole = path.read_bytes()
    path.write_bytes(whole[:-1])
    with pytest.raises(CaseError, match=rf"file {name} has \d+ bytes, the manifest lists \d+"):
        load_case(folder)
    path.write_bytes(whole[:-3] + b"xyz")
    with pytest.raises(CaseError, match=rf"file {name} was changed"):
        load_case(folder)
    path.unlink()
    with pytest.raises(CaseError, match=rf"file {name} is missing"):
        load_case(folder)


def test_a_case_of_a_newer_schema_says_to_upgrade(folder: Path) -> None:
    change_manifest(folder, lambda data: data.clear() or data.update(schema=7))
    with pytest.raises(CaseError, match=r"newer ctk \(schema 7, this ctk reads up to 2\): upgrade"):
        load_case(folder)


@pytest.mark.parametrize(
    "key",
    ["schema", "name", "target", "config", "modes", "dynamic", "symbols", "imports", "files"],
)
@pytest.mark.parametrize("value", [None, [3], {"x": [3]}, True, "text", 1.5], ids=repr)
def test_wrong_types_in_a_manifest_are_case_errors(folder: Path, key: str, value: object) -> None:
    right = {"name": str, "target": str, "config": dict, "symbols": dict}.get(key)
    if right is not None and isinstance(value, right):
        return  # it has the right type
    change_manifest(folder, lambda data: data.update({key: value}))
    with pytest.raises(CaseError, match=r"manifest\.json"):
        load_case(folder)


@pytest.mark.parametrize(
    "signature", [{}, {"kind": "exec", "message": ""}, {"kind": "nan", "message": 3}, 3], ids=str
)
def test_a_wrong_signature_is_a_case_error(folder: Path, signature: object) -> None:
    change_manifest(folder, lambda data: data.update(signature=signature))
    with pytest.raises(CaseError, match="signature"):
        load_case(folder)


@pytest.mark.parametrize("name", ["../secret", "/etc/passwd", "a/../../b", "", "a\nb", "~/x", ".."])
def test_files_outside_the_folder_are_refused(folder: Path, name: str) -> None:
    record = {"nbytes": 0, "sha256": ""}
    change_manifest(folder, lambda data: data["files"].update({name: record}))
    with pytest.raises(CaseError, match="leads out of the case folder"):
        load_case(folder)
    change_manifest(folder, lambda data: data["files"].pop(name))
    change_manifest(folder, lambda data: data.update(sources=[name]))
    with pytest.raises(CaseError, match="leads out of the case folder"):
        load_case(folder)


def test_a_link_out_of_the_folder_is_refused(folder: Path, tmp_path: Path) -> None:
    path = folder / "graph.py"
    path.rename(tmp_path / "elsewhere.py")
    path.symlink_to(tmp_path / "elsewhere.py")
    with pytest.raises(CaseError, match="is a link, or lies behind one"):
        load_case(folder)


def test_inputs_of_another_case_are_a_case_error(folder: Path, tmp_path: Path) -> None:
    (case,) = capture(nested_cond, torch.ones(3))
    other = save_case(case, tmp_path / "other")
    (folder / "inputs.json").write_bytes((other / "inputs.json").read_bytes())
    recorded = read_manifest(other).files["inputs.json"]
    change_manifest(
        folder, lambda data: data["files"].update({"inputs.json": dataclasses.asdict(recorded)})
    )
    with pytest.raises(CaseError, match="are not the graph's"):
        load_case(folder)


# --- strangers' code ----------------------------------------------------------------------------

EVIL = """
import pathlib
pathlib.Path(r"{mark}").write_text("ran")
import torch
@torch.library.custom_op("ctk_evil_{number}::op", mutates_args=())
def op(x: torch.Tensor) -> torch.Tensor:
    return x + 1
"""


@pytest.fixture
def evil(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, Path]:
    """A case that needs module `evil_module`, and the file that appears when that is imported."""
    mark = tmp_path / "ran"
    (tmp_path / "code").mkdir()
    (tmp_path / "code" / "evil_module.py").write_text(EVIL.format(mark=mark, number=id(tmp_path)))
    monkeypatch.syspath_prepend(str(tmp_path / "code"))
    monkeypatch.delitem(sys.modules, "evil_module", raising=False)
    folder = save_case(linear_case(), tmp_path / "case")
    change_manifest(folder, lambda data: data.update(imports=["evil_module"]))
    return folder, mark


def test_loading_imports_nothing_that_the_user_did_not_allow(evil: tuple[Path, Path]) -> None:
    folder, mark = evil
    with pytest.raises(TrustError, match=r"(?s)imports the module 'evil_module'.*--trust"):
        load_case(folder)
    with pytest.raises(TrustError, match="evil_module"):
        load_case(folder, allow_imports=["something_else"])
    assert not mark.exists()
    load_case(folder, allow_imports=["evil_module"])
    assert mark.exists()


def test_trust_imports_the_modules_of_a_case(evil: tuple[Path, Path]) -> None:
    folder, mark = evil
    load_case(folder, trust=True)
    assert mark.exists()


def test_allowing_a_module_that_the_case_does_not_list_imports_nothing(
    evil: tuple[Path, Path],
) -> None:
    folder, mark = evil
    change_manifest(folder, lambda data: data.update(imports=[]))
    load_case(folder, allow_imports=["evil_module"])
    assert not mark.exists()


def test_an_op_of_a_module_that_is_not_allowed_says_what_to_allow(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mark, number = tmp_path / "ran", id(tmp_path)
    (tmp_path / "ops_of_jane.py").write_text(EVIL.format(mark=mark, number=number))
    monkeypatch.syspath_prepend(str(tmp_path))
    __import__("ops_of_jane")
    operator = getattr(torch.ops, f"ctk_evil_{number}").op.default
    graph = torch.fx.Graph()
    graph.output((graph.call_function(operator, (graph.placeholder("x"),)),))
    folder = save_case(
        Case(torch.fx.GraphModule({}, graph), (torch.ones(2),)), tmp_path / "case", inputs="full"
    )
    assert read_manifest(folder).imports == ("ops_of_jane",)
    text = (folder / "graph.json").read_text().replace(f"ctk_evil_{number}", "ctk_evil_absent")
    rewrite(folder, "graph.json", text)
    with pytest.raises(CaseError, match=r"(?s)'ops_of_jane'.*ctk_evil_absent.*--allow-import"):
        load_case(folder)


@pytest.mark.parametrize("target", ["os.system", "builtins.eval", "torch.load", "os:system"])
def test_a_malicious_case_with_right_hashes_runs_nothing(folder: Path, target: str) -> None:
    data = json.loads((folder / "graph.json").read_text())
    call = next(node for node in data["nodes"] if node["op"] == "call_function")
    call.update(target=target, args=["touch /tmp/owned"], kwargs={})
    rewrite(folder, "graph.json", json.dumps(data))
    with pytest.raises(CaseError, match=target):
        load_case(folder, allow_imports=["os"])
    with pytest.raises(CaseError, match=target):
        load_case(folder)
    with pytest.raises(CaseError, match=target):
        load_case(folder, trust=True)


def test_an_import_that_fails_is_a_case_error(folder: Path) -> None:
    change_manifest(folder, lambda data: data.update(imports=["no_such_module_4711"]))
    with pytest.raises(CaseError, match=r"no_such_module_4711.*cannot be imported"):
        load_case(folder, allow_imports=["no_such_module_4711"])


def test_deep_nesting_anywhere_is_a_case_error(folder: Path) -> None:
    nested = "[" * 900 + "]" * 900
    inputs = json.loads((folder / "inputs.json").read_text())
    inputs["values"]["x"] = 4711
    rewrite(folder, "inputs.json", json.dumps(inputs).replace("4711", nested))
    with pytest.raises(CaseError):
        load_case(folder)
    (folder / "manifest.json").write_text("[" * 100_000)
    with pytest.raises(CaseError, match="manifest"):
        load_case(folder)
