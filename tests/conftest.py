"""What every test stands on: few threads, fixed seeds, no `CTK_*` variables, and golden files."""

import os
import random
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.helpers.long_lived import LongLivedObjects
from tests.helpers.warm_python import run_repros_warm, warm_python

os.environ.setdefault("OMP_NUM_THREADS", "2")  # before torch is imported: it reads this once
if not Path("/dev/nvidiactl").exists():  # without a GPU, Triton's kernels run in its interpreter
    os.environ.setdefault("TRITON_INTERPRET", "1")

SEED = 20240229
GOLDEN = Path(__file__).parent / "golden"


if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # started in the background of a shell
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--update-golden", action="store_true", help="write golden files anew instead of comparing"
    )
    parser.addoption(
        "--reports",
        type=Path,
        help="keep the folders of browser tests here, and use them again",
    )
    parser.addoption(
        "--update-screenshots", action="store_true", help="write the screenshots of the documents"
    )


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(LongLivedObjects())


def pytest_report_header() -> str:
    return f"seed: {SEED}, threads: {os.environ['OMP_NUM_THREADS']}"


@pytest.fixture(autouse=True)
def fixed_seeds() -> None:
    """Give each test the same random numbers, whatever ran before it."""
    import torch

    from ctk.compiler.torch_compat.process.process_state import start_autograd

    start_autograd()  # before the first fake tensors, as in a process of ctk

    random.seed(SEED)
    torch.manual_seed(SEED)


@pytest.fixture(autouse=True)
def no_ctk_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hide the developer's own CTK_* variables from the tests, and the persistent cache."""
    for name in [name for name in os.environ if name.startswith("CTK_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("CTK_CACHE", "0")


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Use a persistent cache in a folder of the test's own; returns the folder."""
    folder = tmp_path / "cache"
    monkeypatch.setenv("CTK_CACHE", "1")
    monkeypatch.setenv("CTK_CACHE_DIR", str(folder))
    return folder


@pytest.fixture(autouse=True)
def fresh_dynamo() -> Iterator[None]:
    """Forget what a test compiled, so that no test depends on the order."""
    yield
    import torch

    torch.compiler.reset()


@pytest.fixture(autouse=True)
def warm_repros(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run emitted repros where torch is imported already, unless a test is about a clean process.

    A process that uses CUDA must not be forked from one that may have looked for it.
    """
    marks = {mark.name for mark in request.node.iter_markers()}
    if marks.isdisjoint({"clean_process", "gpu"}):
        run_repros_warm(monkeypatch)


@pytest.fixture
def warm_children(monkeypatch: pytest.MonkeyPatch) -> None:
    """Start child processes of this test with torch imported already."""
    monkeypatch.setattr(sys, "executable", str(warm_python()))


@pytest.fixture
def update_golden(request: pytest.FixtureRequest) -> bool:
    """Whether golden files are written anew."""
    return bool(request.config.getoption("--update-golden"))


@pytest.fixture
def golden(update_golden: bool) -> Callable[[str, str], None]:
    """Return `compare(name, text)`: text against `tests/golden/<name>`, or the file renewed."""

    def compare(name: str, text: str) -> None:
        path = GOLDEN / name
        if update_golden:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        assert path.exists(), f"no golden file {name}; write it with --update-golden"
        assert text == path.read_text(encoding="utf-8"), (
            f"{name} differs; --update-golden rewrites it"
        )

    return compare
