"""Packages that are well sealed: used in ways that no compile has seen, and malformed ones."""

import copy
import json
import os
import stat

import pytest
import torch

from ctk.compiler.artifacts.container import open_container, write
from ctk.compiler.errors import (
    ArtifactError,
    ConfigError,
    ContainerError,
    InputError,
    StorageError,
)
from ctk.compiler.packages.package import MANIFEST, load
from ctk.compiler.packages.write import aot_compile, write_package


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(8, 4)

    def forward(self, x, counts):
        counts.add_(1)
        return {"sum": self.linear(x).relu().sum(-1), "fixed": 3}


@pytest.fixture(scope="module")
def model():
    torch.manual_seed(0)
    return Model()


@pytest.fixture(scope="module")
def path(model, tmp_path_factory):
    target = tmp_path_factory.mktemp("package") / "model.ctk"
    return aot_compile(model, (torch.randn(5, 8), torch.zeros(5)), path=target)


def test_the_callers_modes_change_nothing_and_stay(model, path):
    package, x = load(path), torch.randn(5, 8)
    with torch.no_grad():
        wanted = model(x, torch.zeros(5))["sum"]
    assert torch.is_grad_enabled()
    found = package(x, torch.zeros(5))["sum"]
    with torch.autocast("cpu", dtype=torch.bfloat16):
        under = package(x, torch.zeros(5))["sum"]
        assert torch.is_autocast_enabled("cpu")
    assert torch.is_grad_enabled()
    assert not found.requires_grad
    assert torch.equal(found, under)
    torch.testing.assert_close(found, wanted)


def test_a_tensor_that_is_written_to_is_no_other_argument(path):
    package, counts = load(path), torch.zeros(5)
    package(torch.randn(5, 8), counts)
    assert counts.tolist() == [1] * 5
    memory = torch.zeros(45)
    with pytest.raises(InputError, match="share memory, and the graph writes to counts"):
        package(memory[:40].view(5, 8), memory[38:43])


def _weight(values):
    class Times(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("w", torch.tensor(values))

        def forward(self, x):
            return torch.atan2(self.w, x)

    return torch.export.export(Times(), (torch.ones(2),))


def test_weights_of_one_name_are_one_if_all_of_their_bits_are(tmp_path):
    nan = float("nan")
    same = write_package(tmp_path / "a.ctk", {"a": _weight([nan, 1.0]), "b": _weight([nan, 1.0])})
    assert len(load(same).manifest["weights"]) == 1
    with pytest.raises(ArtifactError, match="a weight w of other values"):
        write_package(tmp_path / "b.ctk", {"a": _weight([0.0, 1.0]), "b": _weight([-0.0, 1.0])})


def test_kernels_are_compiled_at_once_whatever_the_options_say(tmp_path):
    options = {"kernels.background": True}
    path = aot_compile(torch.sin, (torch.ones(3),), options=options, path=tmp_path / "a.ctk")
    assert torch.allclose(load(path)(torch.ones(3)), torch.ones(3).sin())
    with pytest.raises(ConfigError, match="cuda_graphs=true is not for packages"):
        aot_compile(torch.sin, (torch.ones(3),), options={"kernels.cuda_graphs": True})


def _changed(path, target, change):
    members = dict(open_container(path).members)
    manifest = json.loads(bytes(members[MANIFEST]))
    change(manifest)
    write(target, {**members, MANIFEST: json.dumps(manifest).encode()})
    return target


def _ways(data, way=()):
    for key, value in data.items() if isinstance(data, dict) else enumerate(data):
        yield (*way, key)
        if isinstance(value, dict | list):
            yield from _ways(value, (*way, key))


@pytest.mark.parametrize("value", [None, {}, pytest.param("odd", marks=pytest.mark.slow)], ids=str)
def test_a_sealed_package_opens_or_is_refused_clearly_whatever_is_in_it(value, path, tmp_path):
    container = open_container(path)
    manifest = json.loads(bytes(container.members[MANIFEST]))
    target, refused = tmp_path / "odd.ctk", 0
    for way in [way for way in _ways(manifest) if "graph" not in way]:
        odd = copy.deepcopy(manifest)
        owner = odd
        for key in way[:-1]:
            owner = owner[key]
        owner[way[-1]] = value
        write(target, {**container.members, MANIFEST: json.dumps(odd).encode()})
        try:
            load(target)
        except (ArtifactError, ContainerError) as error:
            assert str(error)
            refused += 1
    assert refused > 30


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda m: m["entries"]["forward"]["weights"].pop(), "is not as described"),
        (lambda m: m["entries"]["forward"]["weights"].append("nothing"), "is not as described"),
        (lambda m: m["entries"]["forward"]["door"]["inputs"].pop(), "is not as described"),
        (
            lambda m: m["entries"]["forward"]["results"].append({"computed": 9}),
            "is not as described",
        ),
        (lambda m: m.pop("entries"), "malformed"),
        (lambda m: m.update(format=99), "format 99"),
        (lambda m: m.update(kind="other"), "is a other of ctk"),
    ],
)
def test_a_sealed_package_says_what_it_holds(change, says, path, tmp_path):
    with pytest.raises((ArtifactError, ContainerError), match=says):
        load(_changed(path, tmp_path / "odd.ctk", change))


def test_what_is_no_place_for_a_file_is_refused_before_a_compile(model, tmp_path, monkeypatch):
    monkeypatch.setattr("ctk.compiler.packages.write.program_of", None)
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    link = tmp_path / "link"
    link.symlink_to(pipe)
    for each in (pipe, link, tmp_path, tmp_path / "none" / "m.ctk", "a\0b", "/dev/full"):
        with pytest.raises(StorageError, match="cannot write"):
            aot_compile(model, (torch.randn(5, 8), torch.zeros(5)), path=each)
    assert stat.S_ISFIFO(pipe.stat().st_mode)
    with pytest.raises(StorageError, match="a device, a pipe or a socket"):
        write(pipe, {"a": b""})


def test_a_link_to_a_file_is_followed(tmp_path):
    link, target = tmp_path / "link.ctk", tmp_path / "target.ctk"
    target.write_bytes(b"")
    link.symlink_to(target)
    aot_compile(torch.nn.ReLU(), (torch.ones(2),), path=link)
    assert link.is_symlink()
    assert load(target)(torch.tensor([-1.0, 1.0])).tolist() == [0, 1]


def test_what_is_no_arguments_or_no_program_is_refused(model, tmp_path):
    for wrong in (torch.ones(1, 2), {"x": torch.ones(1)}, None):
        with pytest.raises(InputError, match="must be a tuple or list"):
            aot_compile(model, wrong, path=tmp_path / "m.ctk")
    with pytest.raises(ArtifactError, match="a is a type, and must be an exported program"):
        write_package(tmp_path / "m.ctk", {"a": torch.nn.Linear})


@pytest.mark.parametrize(
    ("weights", "said"),
    [
        (None, "got a NoneType"),
        ([torch.ones(4)], "got a list"),
        ({"linear.bias": "text"}, "linear.bias must be a strided tensor, and is a str"),
        ({"linear.bias": torch.ones(4).to_sparse()}, "and is torch.sparse_coo"),
        ({"linear.bais": torch.ones(4)}, "such as linear.bais; did you mean 'linear.bias'"),
    ],
)
def test_what_cannot_be_bound_is_refused(path, weights, said):
    with pytest.raises(InputError, match=said):
        load(path).bind(weights)


@pytest.mark.parametrize("wrong", ["", "a\0b", None, "/", "a" * 5000])
def test_what_is_no_package_cannot_be_loaded(wrong):
    with pytest.raises(ContainerError):
        load(wrong)
