"""What torch says of candidates is kept from the terminal, and nothing else is."""

import logging
import warnings
from collections.abc import Generator
from pathlib import Path

import pytest

from ctk.toolkit.operations.session.torch_silence import quiet
from tests.helpers.cli import ctk, write
from tests.helpers.own_oracles import PROGRAM

torch_log = logging.getLogger("torch.some.module")


@pytest.fixture
def lines(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What a handler of torch's log writes."""
    told: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: told.append(record.getMessage())
    monkeypatch.setattr(logging.getLogger("torch"), "handlers", [handler])
    return told


@pytest.fixture
def shown(monkeypatch: pytest.MonkeyPatch) -> Generator[list[str]]:
    """The warnings that are shown; all are."""
    told: list[str] = []
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        warnings.showwarning = lambda message, *rest: told.append(str(message))
        yield told


def test_warnings_are_not_shown(shown: list[str]) -> None:
    with quiet():
        warnings.warn("of a candidate", stacklevel=1)
    warnings.warn("of the program", stacklevel=1)
    assert shown == ["of the program"]


def test_warnings_that_are_errors_stay_errors() -> None:
    with quiet(), pytest.raises(UserWarning, match="wanted"):
        warnings.warn("wanted", stacklevel=1)


def test_torchs_log_says_nothing_meanwhile(
    lines: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("TORCH_LOGS", raising=False)
    ours = logging.getLogger("ctk.some.module")
    monkeypatch.setattr(ours, "handlers", logging.getLogger("torch").handlers)
    with quiet():
        torch_log.error("of a candidate")
        ours.error("of ours")
    torch_log.error("of the program")
    assert lines == ["of ours", "of the program"]


def test_the_loggers_that_have_handlers_of_their_own_say_nothing_either(
    lines: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("TORCH_LOGS", raising=False)
    inductor = logging.getLogger("torch._inductor")
    monkeypatch.setattr(inductor, "handlers", logging.getLogger("torch").handlers)
    monkeypatch.setattr(inductor, "propagate", False)
    monkeypatch.setattr(inductor, "level", logging.DEBUG)
    with quiet():
        logging.getLogger("torch._inductor.some.module").error("of a candidate")
        inductor.debug("asked for in Python: it is off by default")
    assert lines == ["asked for in Python: it is off by default"]


def test_who_asks_for_torchs_log_gets_it(lines: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCH_LOGS", "+dynamo")
    with quiet():
        torch_log.error("of a candidate")
    assert lines == ["of a candidate"]


BACKEND = """
import logging
import warnings

def compile(gm, example_inputs):
    names = {getattr(node.target, "__name__", "") for node in gm.graph.nodes}
    about = "given" if "relu" in names else "candidate"
    logging.getLogger("torch.fx").error(about)
    warnings.warn(about, stacklevel=1)
    if "softmax" in names:
        raise ValueError("softmax")
    return gm
"""


def test_a_minimization_shows_what_is_said_of_the_given_program_alone(
    lines: list[str], shown: list[str], tmp_path: Path
) -> None:
    program = write(tmp_path, "program.py", PROGRAM)
    backend = write(tmp_path, "backend.py", BACKEND)
    said = ctk("minify", program, "--target", f"{backend}:compile", "--out", tmp_path / "out")
    assert said.code == 1
    assert set(lines) == set(shown) == {"given"}
