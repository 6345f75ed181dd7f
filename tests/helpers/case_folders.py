"""A saved case, and what an attacker or a broken disk can do to it: for the tests of `store`."""

import dataclasses
import functools
import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from ctk.toolkit.case.case import Case
from tests.helpers.case_zoo import capture


@functools.cache
def captured_linear() -> Case:
    torch.manual_seed(0)
    (case,) = capture(torch.nn.Linear(40, 20), torch.randn(5, 40))
    return case


def linear_case(**changes: Any) -> Case:
    return dataclasses.replace(captured_linear(), **changes)


def change_manifest(folder: Path, change: Callable[[dict[str, Any]], object]) -> None:
    path = folder / "manifest.json"
    data = json.loads(path.read_text())
    change(data)
    path.write_text(json.dumps(data))


def rewrite(folder: Path, name: str, text: str) -> None:
    """What an attacker can do: change a file and its hash."""
    (folder / name).write_text(text)
    record = {
        "nbytes": len(text.encode()),
        "sha256": hashlib.sha256(text.encode()).hexdigest(),
    }
    change_manifest(folder, lambda data: data["files"].update({name: record}))
