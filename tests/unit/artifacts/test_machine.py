import platform

import pytest
import torch

from ctk.compiler.artifacts import machine
from ctk.compiler.artifacts.machine import refuse_other, requirements
from ctk.compiler.errors import ArtifactError


def test_this_machine_is_as_it_says():
    known = machine.cpu_features() or frozenset()
    refuse_other(requirements(known, ()), "m.ctk")


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({"system": "Windows"}, f"m.ctk was compiled for {platform.machine()} on Windows"),
        ({"processor": "riscv64"}, "m.ctk was compiled for riscv64 on"),
        ({"cpu_features": ["avx1024"]}, "this one has no avx1024"),
        ({"torch": "1.0.0"}, "was compiled with torch 1.0.0; this is torch"),
    ],
)
def test_another_machine_is_refused_with_what_differs(changed, says):
    with pytest.raises(ArtifactError, match=says):
        refuse_other({**requirements((), ()), **changed}, "m.ctk")


def test_a_gpu_must_be_there_and_of_that_kind(monkeypatch):
    needed = requirements((), {"9.0"})
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(ArtifactError, match="compiled for a GPU, and there is none here"):
        refuse_other(needed, "m.ctk")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: "A100")
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda: (8, 0))
    with pytest.raises(ArtifactError, match=r"capability 9\.0; A100 has 8\.0"):
        refuse_other(needed, "m.ctk")
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda: (9, 0))
    refuse_other(needed, "m.ctk")
