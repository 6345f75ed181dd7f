"""`ctk cache ls|verify|clear|why`."""

from pathlib import Path

import pytest
import torch

from ctk.compiler.cache.entry import Key
from ctk.compiler.cache.key import key_parts
from ctk.compiler.cache.store import Store
from ctk.compiler.codegen import CODEGEN_OPTIONS
from ctk.compiler.options.config import resolve
from ctk.compiler.passes import PASSES
from ctk.compiler.rewriting.stage_passes import select_passes
from ctk.toolkit.cli.app import COMMANDS
from ctk.toolkit.cli.commands import cache_clear, cache_ls, cache_verify, cache_why
from tests.helpers.cli import GOOD, ctk, write

KEY = Key({"graph": "abs", "config": "default", "torch": "2.13"})
OTHER = Key({"graph": "abs", "config": "default", "torch": "2.12"})
ABOUT = {"nodes": 3, "stages": "inference", "device": "cpu", "ctk": "0.1", "torch": "2.13"}


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Store:
    monkeypatch.setenv("CTK_CACHE", "1")
    monkeypatch.setenv("CTK_CACHE_DIR", str(tmp_path / "cache"))
    (tmp_path / "cache").mkdir(mode=0o700)
    return Store(tmp_path / "cache", 2 << 30)


@pytest.fixture
def filled(store: Store) -> Store:
    store.put(KEY, {"a": bytes(3000)}, ABOUT)
    store.put(OTHER, {"a": bytes(3000)}, ABOUT)
    store.get(KEY)
    return store


def test_they_are_commands() -> None:
    modules = (cache_ls, cache_verify, cache_clear, cache_why)
    assert {module.COMMAND for module in modules} <= set(COMMANDS)


@pytest.mark.parametrize("command", ["ls", "verify", "clear", "why"])
def test_nothing_is_made_where_nothing_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    monkeypatch.setenv("CTK_CACHE", "1")
    monkeypatch.setenv("CTK_CACHE_DIR", str(tmp_path / "none"))
    assert ctk("cache", command).code == 0
    assert ctk("cache", command, "--json").data["command"] == f"cache {command}"
    assert not list(tmp_path.iterdir())


def test_ls(filled: Store) -> None:
    said = ctk("cache", "ls")
    assert said.code == 0
    nbytes = sum(path.stat().st_size for path in filled.folder.iterdir())
    size = cache_ls.spoken_size(nbytes)
    assert said.first == f"2 entries in {filled.root}, {size} of at most 2G"
    assert f"{KEY.digest[:12]}" in said.out
    assert "inference" in said.out
    filled.put(Key({"version.ctk": "e" * 64}), {"a": b""})
    assert f" {'e' * 12} " in ctk("cache", "ls").out
    (one,) = (e for e in ctk("cache", "ls", "--json").data["entries"] if e["entry"] == KEY.digest)
    assert (one["hits"], one["about"], one["key"]) == (1, ABOUT, dict(KEY.parts))


def test_verify(filled: Store) -> None:
    assert ctk("cache", "verify").first == "2 entries, all as they were once written"
    path = filled.folder / KEY.digest
    path.write_bytes(path.read_bytes()[:-7])
    said = ctk("cache", "verify")
    assert (said.code, said.first) == (1, "2 entries, 1 wrong")
    assert str(path) in said.out
    assert path.exists()
    said = ctk("cache", "verify", "--repair", "--json")
    assert (said.code, said.data["removed"]) == (0, 1)
    assert not path.exists()
    assert ctk("cache", "verify").code == 0


def test_clear(filled: Store) -> None:
    assert ctk("cache", "clear", "nothing").code == 2
    assert ctk("cache", "clear", KEY.digest[:8]).code == 0
    assert [entry.digest for entry in filled.entries()] == [OTHER.digest]
    said = ctk("cache", "clear")
    assert (said.code, said.first) == (0, f"removed 1 entry from {filled.root}")
    assert ctk("cache", "ls").first == f"the persistent cache is empty: {filled.root}"


def test_why(filled: Store) -> None:
    assert ctk("cache", "why").first == "no miss is noted"
    missed = Key({**KEY.parts, "config": "x" * 100})
    filled.get(missed)
    said = ctk("cache", "why")
    assert said.code == 0
    assert said.first == (
        f"missed 0 s ago; {missed.digest[:12]} is not in the cache now; "
        "the nearest entry differs in: config"
    )
    assert f"nearest entry: {KEY.digest[:12]} nodes=3" in said.out
    data = ctk("cache", "why", missed.digest[:10], "--json").data
    assert data["differences"] == [{"part": "config", "theirs": "default", "ours": "x" * 100}]
    said = ctk("cache", "why", KEY.digest[:10])
    assert said.first == f"{KEY.digest[:12]} is in the cache; the nearest entry differs in: torch"
    assert ctk("cache", "why", "zz").code == 2


def test_why_it_was_dropped_or_bypassed(filled: Store) -> None:
    path = filled.folder / KEY.digest
    path.write_bytes(b"nothing")
    assert filled.get(KEY) is None
    assert f"{path} is not used: it is not a ctk-entry" in ctk("cache", "why").first
    filled.notes.tell("bypassed", "", "the compile is observed")
    assert ctk("cache", "why").first == "bypassed 0 s ago: the compile is observed"


def test_a_folder_that_others_may_write_to(filled: Store) -> None:
    filled.root.chmod(0o777)
    said = ctk("cache", "ls")
    assert said.code == 125
    assert "can be written by others" in said.first


def test_why_a_program_is_not_in_the_cache(filled: Store, tmp_path: Path) -> None:
    """Its key is that of a compile: what is put under it is found."""
    program = write(tmp_path, "program.py", GOOD)
    said = ctk("cache", "why", program)
    assert said.code == 0
    assert "is not in the cache; the nearest entry differs in: ambient." in said.first
    keys: list[Key] = []

    def note_key(gm: torch.fx.GraphModule, inputs: list[torch.Tensor]) -> torch.fx.GraphModule:
        config = resolve(None)
        passes = select_passes(PASSES, config, CODEGEN_OPTIONS)
        keys.append(Key(key_parts(gm, inputs, config, passes)))
        return gm

    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU())
    torch.compile(model, backend=note_key)(torch.randn(2, 4))
    filled.put(keys[0], {"a": b"1"})
    said = ctk("cache", "why", program)
    assert said.first.startswith(f"{keys[0].digest[:12]} is in the cache; "), said.out
    (graph,) = ctk("cache", "why", program, "--json").data["graphs"]
    assert (graph["entry"], graph["is_kept"]) == (keys[0].digest, True)


def test_why_a_program_cannot_be_in_the_cache(filled: Store, tmp_path: Path) -> None:
    program = write(
        tmp_path, "program.py", f"{GOOD}\ndef config():\n    return {{'freezing': True}}\n"
    )
    assert (
        "not kept in the cache: parameters become constants" in ctk("cache", "why", program).first
    )
