"""Case folders: whole or not at all, nothing secret inside, and damage is said clearly."""

import multiprocessing
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from ctk.compiler.errors import CaseError
from ctk.toolkit.case.case import Autocast, Case, Modes
from ctk.toolkit.case.failure import Signature
from ctk.toolkit.case.formats.files import PARTIAL, atomic_folder, unique_folder
from ctk.toolkit.case.formats.scrub import shorten_home
from ctk.toolkit.case.graphs.graph_json import graph_to_json
from ctk.toolkit.case.manifest import read_manifest
from ctk.toolkit.case.store import load_case, save_case
from tests.helpers.case_folders import linear_case
from tests.helpers.case_zoo import Sample, capture, samples
from tests.helpers.forking import FORKS


def same_inputs(one: Case, other: Case) -> bool:
    return len(one.inputs) == len(other.inputs) and all(
        torch.equal(a, b) and type(a) is type(b) and a.requires_grad == b.requires_grad
        if isinstance(a, torch.Tensor) and isinstance(b, torch.Tensor)
        else a == b and type(a) is type(b)
        for a, b in zip(one.inputs, other.inputs, strict=True)
    )


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return save_case(linear_case(), tmp_path / "case", inputs="full")


@pytest.mark.parametrize("sample", samples(), ids=lambda sample: sample.name)
def test_a_case_comes_back_with_the_same_graph_and_values(sample: Sample, tmp_path: Path) -> None:
    for case in capture(sample.run, *sample.inputs, dynamic=sample.dynamic):
        loaded = load_case(save_case(case, tmp_path / case.name, inputs="full"))
        assert graph_to_json(loaded.graph)[0] == graph_to_json(case.graph)[0]
        assert same_inputs(loaded, case)
        assert loaded.dynamic == case.dynamic
        assert loaded.synthetic == ()
        torch.manual_seed(1)
        expected = case.graph(*case.inputs)
        torch.manual_seed(1)
        assert str(expected) == str(loaded.graph(*loaded.inputs))


def test_everything_beside_the_graph_comes_back(tmp_path: Path) -> None:
    source = tmp_path / "my_pass.py"
    source.write_text("def fold(gm): ...\n")
    case = linear_case(
        target="inductor",
        config={"freezing": True, "list": [1, 2.5, None, {"a": "b"}]},
        modes=Modes(
            grad=False,
            autocast=(Autocast("cpu", "bfloat16", cache_enabled=False),),
            deterministic=True,
            seed=7,
        ),
        signature=Signature("accuracy", output="out0", message="max abs 0.1"),
        name="graph3",
        sources=(source,),
        dynamic={"l_x_": ("s0", None)},
    )
    loaded = load_case(save_case(case, tmp_path / "case"), trust=True)
    for name in ("target", "config", "modes", "signature", "name", "dynamic"):
        assert getattr(loaded, name) == getattr(case, name)
    (copied,) = loaded.sources
    assert copied.read_text() == source.read_text()
    assert copied.is_relative_to(tmp_path / "case")


def test_sources_of_one_name_are_both_kept(tmp_path: Path) -> None:
    for number in (1, 2):
        (tmp_path / str(number)).mkdir()
        (tmp_path / str(number) / "passes.py").write_text(str(number))
    sources = tuple(tmp_path / str(number) / "passes.py" for number in (1, 2))
    loaded = load_case(save_case(linear_case(sources=sources), tmp_path / "case"))
    assert [source.read_text() for source in loaded.sources] == ["1", "2"]


def test_numbers_and_none_are_inputs_too(tmp_path: Path) -> None:
    graph = torch.fx.Graph()
    inputs = (torch.ones(2), 3, -0.5, True, None, float("inf"))
    nodes = [graph.placeholder(f"in_{number}") for number in range(len(inputs))]
    graph.output(tuple(nodes))
    case = Case(torch.fx.GraphModule({}, graph), inputs)
    assert same_inputs(load_case(save_case(case, tmp_path / "case")), case)


# --- what is kept -------------------------------------------------------------------------------


def test_a_recipe_keeps_no_weights_and_no_large_activations(tmp_path: Path) -> None:
    case = linear_case()
    loaded = load_case(save_case(case, tmp_path / "case", inputs="recipe"))
    names = {node.name for node in case.graph.graph.nodes if node.op == "placeholder"}
    assert set(loaded.synthetic) == names
    assert not (tmp_path / "case" / "inputs.safetensors").exists()
    for one, other in zip(case.inputs, loaded.inputs, strict=True):
        assert isinstance(one, torch.Tensor)
        assert isinstance(other, torch.Tensor)
        assert not torch.equal(one, other)
        assert abs(one.mean().item() - other.mean().item()) < 0.2
    assert same_inputs(loaded, load_case(tmp_path / "case"))


@pytest.mark.parametrize(
    ("tensor", "stored"),
    [
        (torch.randn(64), True),
        (torch.randn(65), False),
        (torch.randint(0, 9, (64,)), True),
        (torch.randint(0, 9, (65,)), False),  # may be a user's tokens
        (torch.nn.Parameter(torch.randn(2)), False),
    ],
    ids=["64 floats", "65 floats", "64 ints", "65 ints", "parameter"],
)
def test_what_a_recipe_stores_of_an_input(
    tensor: torch.Tensor, stored: bool, tmp_path: Path
) -> None:
    (case,) = capture(lambda x: x + 1, tensor)
    loaded = load_case(save_case(case, tmp_path / "case", inputs="recipe"))
    assert same_inputs(loaded, case) is stored
    assert bool(loaded.synthetic) is not stored


@pytest.mark.parametrize(("size", "stored"), [(8, True), (4096, True), (4097, False)])
def test_what_a_recipe_stores_of_buffers(size: int, stored: bool, tmp_path: Path) -> None:
    module = torch.nn.Module()
    module.register_buffer("table", torch.randn(size))
    module.forward = lambda x: x * module.table  # type: ignore[method-assign] # a test double
    (case,) = capture(module, torch.ones(1))
    loaded = load_case(save_case(case, tmp_path / "case", inputs="recipe"))
    assert same_inputs(loaded, case) is stored


def test_constants_of_the_graph_follow_the_same_rule(tmp_path: Path) -> None:
    root = torch.nn.Module()
    root.register_buffer("small", torch.randn(8))
    root.register_buffer("large", torch.randn(5000))
    root.weight = torch.nn.Parameter(torch.randn(3))
    graph = torch.fx.Graph()
    graph.output(tuple(graph.get_attr(name) for name in ("small", "large", "weight")))
    case = Case(torch.fx.GraphModule(root, graph), ())
    loaded = load_case(save_case(case, tmp_path / "case", inputs="recipe"))
    kept = [torch.equal(a, b) for a, b in zip(case.graph(), loaded.graph(), strict=True)]
    assert kept == [True, False, False]
    assert loaded.synthetic == ("large", "weight")
    full = load_case(save_case(case, tmp_path / "full", inputs="full"))
    assert all(torch.equal(a, b) for a, b in zip(case.graph(), full.graph(), strict=True))


def test_none_keeps_not_even_statistics(tmp_path: Path) -> None:
    (case,) = capture(lambda x: x + 1, torch.full((4,), 4711.5))
    save_case(case, tmp_path / "case", inputs="none")
    for path in (tmp_path / "case").iterdir():
        assert b"4711" not in path.read_bytes()


def test_synthetic_values_survive_another_save(tmp_path: Path) -> None:
    once = load_case(save_case(linear_case(), tmp_path / "one", inputs="recipe"))
    twice = load_case(save_case(once, tmp_path / "two", inputs="recipe"))
    assert same_inputs(once, twice)
    assert twice.synthetic == once.synthetic


def test_an_unknown_way_to_keep_inputs_is_named(tmp_path: Path) -> None:
    with pytest.raises(CaseError, match=r"'ful' is none of .*did you mean 'full'"):
        save_case(linear_case(), tmp_path / "case", inputs="ful")


# --- secrets ------------------------------------------------------------------------------------


def test_no_secret_of_the_environment_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    token = "tok-3f9a1c77"
    for name in ("MY_TORCH_SECRET_TOKEN", "TORCH_TOKEN", "CTK_TOKEN", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, token)
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    for mode in ("full", "recipe", "none"):
        save_case(linear_case(), tmp_path / mode, inputs=mode)
        for path in (tmp_path / mode).rglob("*"):
            assert token.encode() not in path.read_bytes(), path
    environment = read_manifest(tmp_path / "full").provenance.environment
    assert isinstance(environment, dict)
    assert environment["OMP_NUM_THREADS"] == "3"


def test_paths_under_home_are_shortened_and_found_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "jane.doe"
    home.mkdir()
    monkeypatch.setenv("HOME", str(home))
    case = linear_case(
        target=f"{home}/backend.py:compile",
        config={"custom_passes": {"joint": [f"{home}/passes.py:fold"]}},
        signature=Signature("compile-error", message=f"cannot open {home}/x.so, see {home}"),
    )
    folder = save_case(case, tmp_path / "case")
    text = (folder / "manifest.json").read_text()
    assert "jane.doe" not in text
    assert "cannot open ~/x.so, see ~" in text
    loaded = load_case(folder, trust=True)
    assert (loaded.target, loaded.config) == (case.target, case.config)


def test_only_whole_components_are_shortened(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/you")
    text = "/home/you-2/x /home/you/x '/home/you' /mnt/home/you/x"
    assert shorten_home(text) == "/home/you-2/x ~/x '~' /mnt/home/you/x"
    monkeypatch.setenv("HOME", "/")
    assert shorten_home("/usr/lib") == "/usr/lib"


def test_graph_py_holds_no_line_of_the_users_source(tmp_path: Path) -> None:
    (case,) = capture(lambda x: x + 1, torch.ones(2))  # secret-comment-4711
    for path in save_case(case, tmp_path / "case").iterdir():
        assert b"secret-comment-4711" not in path.read_bytes()


# --- whole or not at all ------------------------------------------------------------------------


def test_nothing_is_overwritten(folder: Path) -> None:
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    with pytest.raises(CaseError, match="exists already"):
        save_case(linear_case(name="other"), folder)
    assert before == {path.name: path.read_bytes() for path in folder.iterdir()}
    assert [path.name for path in folder.parent.iterdir()] == ["case"]


def test_an_empty_folder_is_taken(tmp_path: Path) -> None:
    assert load_case(save_case(linear_case(), unique_folder(tmp_path, "case")))


def test_overwrite_replaces_the_case_and_keeps_the_rest(folder: Path) -> None:
    (folder / "stages").mkdir()
    (folder / "stages" / "00.py").write_text("kept")
    save_case(linear_case(name="other"), folder, inputs="recipe", overwrite=True)
    assert load_case(folder).name == "other"
    assert not (folder / "inputs.safetensors").exists()
    assert (folder / "stages" / "00.py").read_text() == "kept"


@pytest.mark.parametrize("error", [ValueError("boom"), KeyboardInterrupt()])
def test_a_failed_write_leaves_nothing(tmp_path: Path, error: BaseException) -> None:
    with pytest.raises(type(error)), atomic_folder(tmp_path / "case") as partial:
        (partial / "graph.json").write_text("{")
        raise error
    assert list(tmp_path.iterdir()) == []


def test_a_case_that_cannot_be_kept_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(CaseError, match=r"config\.hook .*'module:function'"):
        save_case(linear_case(config={"hook": print}), tmp_path / "case")
    with pytest.raises(CaseError, match="1 input for 3 placeholders"):
        save_case(linear_case(inputs=(1,)), tmp_path / "case")
    assert list(tmp_path.iterdir()) == []


def test_what_a_dead_writer_left_is_recognised(tmp_path: Path) -> None:
    half = tmp_path / f".case{PARTIAL}"
    half.mkdir()
    (half / "graph.json").write_text("{}")
    with pytest.raises(CaseError, match=r"half-written.*died"):
        load_case(half)


def _claim(parent: str, connection: Any) -> None:
    connection.send([unique_folder(Path(parent), "graph0").name for _ in range(20)])


@FORKS
def test_names_never_collide_between_processes(tmp_path: Path) -> None:
    context = multiprocessing.get_context("fork" if sys.platform == "linux" else "spawn")
    pipes = [context.Pipe() for _ in range(3)]
    workers = [context.Process(target=_claim, args=(str(tmp_path), writer)) for _, writer in pipes]
    for worker in workers:
        worker.start()
    names = [name for reader, _ in pipes for name in reader.recv()]
    for worker in workers:
        worker.join()
    assert len(set(names)) == 60 == len(list(tmp_path.iterdir()))


def test_ranks_are_in_the_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANK", "2")
    assert unique_folder(tmp_path, "graph0").name == "graph0-rank2"
    assert unique_folder(tmp_path, "graph0").name.startswith("graph0-rank2-")


def test_another_device_can_be_asked_for(tmp_path: Path) -> None:
    graph = torch.fx.Graph()
    made = graph.call_function(torch.zeros, (2,), {"device": torch.device("cuda:0")})
    graph.output((graph.call_function(torch.add, (graph.placeholder("x"), made)),))
    case = Case(torch.fx.GraphModule({}, graph), (torch.ones(2),))
    loaded = load_case(save_case(case, tmp_path / "case"), device="cpu")
    assert loaded.graph(*loaded.inputs)[0].tolist() == [1.0, 1.0]


def test_any_text_can_be_a_value(tmp_path: Path) -> None:
    graph = torch.fx.Graph()
    graph.output((graph.placeholder("x"), "\ud800 lone surrogate, \u2028 and \x00"))
    case = Case(torch.fx.GraphModule({}, graph), (torch.ones(1),))
    loaded = load_case(save_case(case, tmp_path / "case"), trust=True)
    assert graph_to_json(loaded.graph)[0] == graph_to_json(case.graph)[0]
