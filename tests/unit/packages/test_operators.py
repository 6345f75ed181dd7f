"""Packages of single operators: found by their arguments, made once, checked, shared."""

import functools
import json
import math
import os
import random
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch

import ctk
from ctk.compiler.packages.operators import operator_package as operators
from ctk.compiler.usercode.identity import implementation_text
from tests.helpers.warm_python import warm_python

aten = torch.ops.aten
X, Y = torch.linspace(-1, 1, 12).reshape(3, 4), torch.linspace(2, 3, 12).reshape(3, 4)
ADD = ("aten", "add.Tensor", "cpu", False, aten.add.Tensor, (X, Y))


WRONG_LISTS = ("", "[]", "{}", "[1]", '[{"meta_info": []}]', "[" * 100_000, "\0")
SLOW = ("cut", "empty", "missing", "other")


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("CTK_CACHE", "1")
    monkeypatch.setenv("CTK_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "cache"


def add(alpha: float = 2) -> Path:
    return Path(ctk.aoti_compile_with_persistent_cache(*ADD, {"alpha": alpha}))


def found(alpha: float = 2) -> Path | None:
    return ctk.find_operator_package("aten", "add.Tensor", "cpu", (X, Y), {"alpha": alpha})


def listed(cache: Path) -> list[dict[str, Any]]:
    return json.loads((cache / "aoti_eager/aten/cpu/add.Tensor.json").read_bytes())


class TestOne:
    def test_it_computes_what_the_operator_does(self, cache: Path) -> None:
        path = add()
        assert torch.equal(ctk.load(path)(X, Y, alpha=2), X + 2 * Y)
        with pytest.raises(ctk.CtkError, match="alpha is 3, and was 2 when"):
            ctk.load(path)(X, Y, alpha=3)
        with pytest.raises(ctk.CtkError, match=r"other is of torch\.float64"):
            ctk.load(path)(X, Y.double(), alpha=2)
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert path.parent == cache / "aoti_eager/aten/cpu/lib"

    def test_it_is_compiled_once(self, monkeypatch: pytest.MonkeyPatch) -> None:
        path = add()
        monkeypatch.setattr(operators, "write_package", None)  # whoever compiles now fails
        assert (add(), found()) == (path, path)
        assert found(3) is None
        assert found(2.0) is None  # another type of number
        for other in ((X, Y.t().contiguous().t()), (X, Y[:2]), (X, Y.double()), (X, 1)):
            assert ctk.find_operator_package("aten", "add.Tensor", "cpu", other) is None

    def test_the_list_can_be_read_by_others(self, cache: Path) -> None:
        from torch._inductor.aoti_eager import extract_scalar_metadata, extract_tensor_metadata

        path = add()
        (record,) = listed(cache)
        tensors = [extract_tensor_metadata(False, each) for each in (X, Y)]
        scalar = extract_scalar_metadata("cpu", 2) | {"arg_name": "alpha"}
        expected = [each | {"arg_order": n} for n, each in enumerate([*tensors, scalar])]
        assert record["meta_info"] == expected
        assert cache / "aoti_eager/aten/cpu" / record["kernel_path"] == path
        (one,) = ctk.load_operator_packages("aten", "add.Tensor", "cpu")
        assert (one.path, list(one.meta_info)) == (path, expected)

    @pytest.mark.slow
    def test_options_are_part_of_what_fits(self) -> None:
        options = {"kernels.exact": True}
        path = add()
        other = ctk.aoti_compile_with_persistent_cache(*ADD, {"alpha": 2}, options=options)
        assert other != str(path)
        where = ("aten", "add.Tensor", "cpu", (X, Y), {"alpha": 2})
        assert str(ctk.find_operator_package(*where, options=options)) == other
        assert ctk.find_operator_package(*where) == path


def scaled(scale: float) -> Any:
    return lambda x: x * scale


def test_an_implementation_is_known_by_what_it_does() -> None:
    texts = [implementation_text(each) for each in (scaled(2), scaled(2), scaled(3))]
    assert texts[0] == texts[1] != texts[2]
    one, other = {"SCALE": 2.0}, {"SCALE": 3.0}
    for names in (one, other):
        exec("def f(x, y=1):\n    return x * SCALE", names)
    assert implementation_text(one["f"]) != implementation_text(other["f"])
    parts = [functools.partial(aten.add.Tensor, alpha=n) for n in (1, 1, 2)]
    texts = [implementation_text(each) for each in parts]
    assert texts[0] == texts[1] != texts[2]
    assert implementation_text(aten.abs.default) == "OpOverload aten.abs.default"
    assert implementation_text(torch.abs).startswith("builtin_function_or_method <built-in method")
    assert " at " not in implementation_text(torch.abs)


class TestDamage:
    @pytest.mark.parametrize(
        "text", ["{", *(pytest.param(text, marks=pytest.mark.slow) for text in WRONG_LISTS)]
    )
    def test_a_list_that_is_wrong_is_made_anew(self, cache: Path, text: str) -> None:
        path = add()
        (cache / "aoti_eager/aten/cpu/add.Tensor.json").write_text(text)
        assert found() is None
        assert ctk.load_operator_packages("aten", "add.Tensor", "cpu") == []
        assert add() == path
        assert len(listed(cache)) == 1

    @pytest.mark.parametrize(
        "damage", ["flipped", *(pytest.param(each, marks=pytest.mark.slow) for each in SLOW)]
    )
    def test_a_package_that_is_wrong_is_made_anew(self, damage: str) -> None:
        path, other = add(), add(3)
        data = bytearray(path.read_bytes())
        data[len(data) // 3] ^= 4
        content = {
            "flipped": bytes(data),
            "cut": path.read_bytes()[:-1],
            "empty": b"",
            "other": other.read_bytes(),
        }
        path.unlink() if damage == "missing" else path.write_bytes(content[damage])
        assert [each.path for each in ctk.load_operator_packages(*ADD[:3])] == [other]
        assert found() is None
        assert add() == path
        assert torch.equal(ctk.load(path)(X, Y, alpha=2), X + 2 * Y)
        assert {found(), found(3)} == {path, other}

    @pytest.mark.slow
    @pytest.mark.parametrize("name", ["../../../x.ctk", "/tmp/x.ctk", "lib/../x.ctk", "x.ctk"])
    def test_a_path_that_leads_elsewhere(self, cache: Path, name: str) -> None:
        add()
        (record,) = listed(cache)
        (cache / "aoti_eager/aten/cpu/add.Tensor.json").write_text(
            json.dumps([record | {"kernel_path": name}])
        )
        assert found() is None

    @pytest.mark.slow
    def test_numbers_that_json_does_not_have(self, cache: Path) -> None:
        for alpha in (math.inf, math.nan, -0.0, 0.0):
            path = add(alpha)
            assert found(alpha) == path

        def refuse(text: str) -> None:
            raise ValueError(text)

        text = (cache / "aoti_eager/aten/cpu/add.Tensor.json").read_text()
        assert len(json.loads(text, parse_constant=refuse)) == 4


class TestRefusals:
    @pytest.mark.parametrize(
        ("change", "says"),
        [
            ({"dynamic": True}, "fixed sizes"),
            ({"dynamic_shapes": {"x": None}}, "fixed sizes"),
            ({"args": (X, object())}, "other is a object"),
            ({"args": (X, [X, object()])}, r"other\[1\] is a object"),
            ({"args": (X, {"a": X})}, "other is a dict"),
            ({"args": (X, X.to_sparse())}, "plain strided tensors"),
            ({"args": (X, torch.empty(3, 4, device="meta"))}, "is on meta"),
            ({"args": (X, Y, 1, 2, 3)}, "takes 3 arguments"),
            ({"kwargs": {"other": Y}}, "got its argument other twice"),
            ({"kwargs": {"beta": Y}}, "no argument beta"),
            ({"ns": "../aten"}, "is no namespace"),
            ({"op_func_name_with_overload": "../add"}, "is no operator"),
            ({"device_type": "cpu/.."}, "is no type of a device"),
            ({"options": {"nothing": 1}}, "nothing"),
            ({"f": lambda x, y: x @ y}, "cannot be traced with these arguments"),
        ],
    )
    def test_refused(self, cache: Path, change: Mapping[str, Any], says: str) -> None:
        names = ("ns", "op_func_name_with_overload", "device_type", "dynamic", "f", "args")
        given = {**dict(zip(names, ADD, strict=True)), "kwargs": {}, **change}
        with pytest.raises(ctk.CtkError, match=says):
            ctk.aoti_compile_with_persistent_cache(**given)
        assert not [path for path in cache.rglob("*") if path.is_file()]

    def test_sizes_of_a_trace(self) -> None:
        def traced(x: torch.Tensor) -> torch.Tensor:
            ctk.find_operator_package("aten", "abs", "cpu", (x,))
            return x

        from torch.fx.experimental.proxy_tensor import make_fx

        with pytest.raises(ctk.CtkError, match="a tensor of a trace"):
            make_fx(traced, tracing_mode="symbolic")(X)

    def test_without_a_cache(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("CTK_CACHE", "0")
        with pytest.raises(ctk.CtkError, match="CTK_CACHE_DIR"):
            add()


B, ROWS, IM = X > 0, torch.tensor([0, 2]), torch.linspace(-1, 1, 2 * 3 * 8 * 8).reshape(2, 3, 8, 8)
FILTER = torch.ones(5, 3, 3, 3)
LIKE = {
    "memory_format": torch.preserve_format,
    "device": torch.device("cpu"),
    "layout": torch.strided,
    "dtype": torch.int32,
}
CALLS: tuple[tuple[str, tuple[Any, ...], dict[str, Any]], ...] = (
    ("add.Tensor", (X, 1.5), {}),
    ("add.Tensor", (X, 1j), {}),
    ("add.Tensor", (X[:0], Y[:0]), {}),
    ("add.Tensor", (torch.tensor(2.0), torch.tensor(3)), {}),
    ("mul.Tensor", (X.t(), Y.t()), {}),
    ("mul.Tensor", (X[:, ::2], Y[:, 1::2]), {}),
    ("logical_and", (B, ~B), {}),
    ("sum.dim_IntList", (X, [0, 1], True), {"dtype": torch.float64}),
    ("sum.dim_IntList", (X, (1,)), {}),
    ("cat", ([X, Y], 1), {}),
    ("stack", ((X, Y),), {}),
    ("clone", (IM,), {"memory_format": torch.channels_last}),
    ("zeros_like", (X,), LIKE),
    ("gelu", (X,), {"approximate": "tanh"}),
    ("index.Tensor", (X, [None, ROWS]), {}),
    ("index_put_", (X.clone(), [ROWS], torch.ones(2, 4)), {}),
    ("relu_", (X.clone(),), {}),
    ("add.out", (X, Y), {"out": torch.zeros(3, 4)}),
    (
        "convolution",
        (IM, torch.ones(5, 3, 3, 3), None, [1, 1], [0, 0], [1, 1], False, [0, 0], 1),
        {},
    ),
    ("max.dim", (X, 1), {}),
    ("topk", (X, 2), {}),
    ("where.self", (B, X, Y), {}),
    ("masked_fill.Scalar", (X, B, -math.inf), {}),
    ("clamp", (X, None, 0.5), {}),
    ("to.dtype", (X, torch.float16), {}),
    ("zeros", ([2, 3],), {}),
    ("full", ([2, 3], math.nan), {}),
    ("native_layer_norm", (X, [4], None, None, 1e-5), {}),
    ("split.Tensor", (X, 2, 1), {}),
    ("view", (X, [4, 3]), {}),
    ("var_mean.correction", (X, [0]), {"keepdim": True, "correction": 1}),
    ("embedding", (X, ROWS), {}),
    ("sin", (torch.complex(X, Y),), {}),
    ("nonzero", (X,), {}),
    ("copy_", (X.clone(), Y), {}),
)


def copied(tree: Any) -> Any:
    def copy(leaf: Any) -> Any:
        return leaf.clone() if isinstance(leaf, torch.Tensor) else leaf

    return torch.utils._pytree.tree_map(copy, tree)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "args", "kwargs"), CALLS, ids=lambda value: str(value)[:20])
def test_operators(name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    packet, _, overload = name.partition(".")
    function = getattr(getattr(aten, packet), overload or "default")
    path = ctk.aoti_compile_with_persistent_cache(
        "aten", name, "cpu", False, function, args, kwargs
    )
    ours, theirs = copied((args, kwargs)), copied((args, kwargs))
    result, expected = ctk.load(path)(*ours[0], **ours[1]), function(*theirs[0], **theirs[1])
    tensors = torch.utils._pytree.tree_leaves((result, ours))
    wanted = torch.utils._pytree.tree_leaves((expected, theirs))
    for one, other in zip(tensors, wanted, strict=True):
        if isinstance(one, torch.Tensor):
            torch.testing.assert_close(one, other, equal_nan=True)
    turned = dict(reversed(kwargs.items()))
    assert str(ctk.find_operator_package("aten", name, "cpu", args, turned)) == path


WORKER = """
import sys, torch, ctk
seed, count = int(sys.argv[1]), int(sys.argv[2])
order = [(n + seed) % count for n in range(count)]
for n in order:
    x = torch.arange(float(n + 1))
    path = ctk.aoti_compile_with_persistent_cache(
        "aten", "add.Tensor", "cpu", False, torch.ops.aten.add.Tensor, (x, x), {"alpha": n})
    assert torch.equal(ctk.load(path)(x, x, alpha=n), x + n * x)
    print(path, flush=True)
"""


def started(number: int, count: int, *, interpreter: Path | str) -> subprocess.Popen[str]:
    command = [str(interpreter), "-c", WORKER, str(number), str(count)]
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, text=True, env=dict(os.environ), start_new_session=True
    )


def sound(count: int) -> int:
    """Return how many of the calls of a worker find a package, each of which is right."""
    hits = 0
    for n in range(count):
        x = torch.arange(float(n + 1))
        path = ctk.find_operator_package("aten", "add.Tensor", "cpu", (x, x), {"alpha": n})
        if path is not None:
            assert torch.equal(ctk.load(path)(x, x, alpha=n), x + n * x)
            hits += 1
    return hits


@pytest.mark.slow
def test_several_processes_lose_nothing(cache: Path) -> None:
    children = [started(number, 6, interpreter=warm_python()) for number in range(4)]
    said = [child.communicate(timeout=300)[0].splitlines() for child in children]
    assert [child.returncode for child in children] == [0] * 4
    assert len({path for lines in said for path in lines}) == 6
    assert len(listed(cache)) == sound(6) == 6
    times = {path: path.stat().st_mtime_ns for path in (cache / "aoti_eager").rglob("*.ctk")}
    child = started(0, 6, interpreter=sys.executable)  # another process, later: it compiles nothing
    assert len(child.communicate(timeout=300)[0].splitlines()) == 6
    assert times == {path: path.stat().st_mtime_ns for path in times}
    assert not list((cache / "locks").iterdir())


@pytest.mark.slow
def test_kills_leave_nothing_wrong(cache: Path) -> None:
    chance = random.Random(0)
    for round_ in range(12):
        child = started(round_, 12, interpreter=sys.executable if round_ == 0 else warm_python())
        time.sleep(chance.uniform(0.2, 1.5) + 4 * (round_ == 0))
        os.killpg(child.pid, signal.SIGKILL)
        child.communicate()
        sound(12)
    child = started(0, 12, interpreter=warm_python())
    assert len(child.communicate(timeout=300)[0].splitlines()) == 12
    assert sound(12) == len(listed(cache)) == 12
    files = [path for path in (cache / "aoti_eager").rglob("*") if path.is_file()]
    assert {path.suffix for path in files} == {".ctk", ".json"}, files
    assert len(files) == 13
