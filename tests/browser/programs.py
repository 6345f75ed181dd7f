"""The programs of the twelve reports: a transformer encoder, with a wrong pass for each failure."""

import shutil
from pathlib import Path

from tests.helpers.project import ROOT

PROGRAM = '''
"""A transformer encoder, compiled with a pass that has a bug."""

import os
import signal

import torch
from broken_pass import Encoder, fold_scale_into_add, inputs

aten = torch.ops.aten


def model():
    torch.manual_seed(0)
    return Encoder().eval()


def raise_at_gelu(gm):
    """Fails to compile."""
    for node in gm.graph.nodes:
        if node.target is aten.gelu.default:
            raise RuntimeError(f"no tile size fits {{node.name}}")


def crash_at_gelu(gm):
    """Kills the process, as a wild pointer does."""
    if any(node.target is aten.gelu.default for node in gm.graph.nodes):
        os.kill(os.getpid(), signal.SIGSEGV)


def divide_by_nothing(gm):
    """Computes 0 / 0 in the rows that a mask would leave out."""
    for node in [node for node in gm.graph.nodes if node.target is aten.gelu.default][2:3]:
        with gm.graph.inserting_after(node):
            zero = gm.graph.call_function(aten.mul.Tensor, (node, 0.0))
        with gm.graph.inserting_after(zero):
            bad = gm.graph.call_function(aten.div.Tensor, (node, zero))
        node.replace_all_uses_with(bad, delete_user_cb=lambda user: user not in (zero, bad))


def config():
    return {{"custom_passes": {{"joint": [f"{{__file__}}:{name}"]}}}}
'''

FAULTS = {
    "accuracy": "fold_scale_into_add",
    "exception": "raise_at_gelu",
    "crash": "crash_at_gelu",
    "nan": "divide_by_nothing",
}
"""The pass of each failure."""

COMMANDS = ("diagnose", "check", "minify")


def write_program(folder: Path, fault: str) -> Path:
    """Write the program of a failure, and the model that it imports; return its path."""
    shutil.copy(ROOT / "examples" / "broken_pass.py", folder / "broken_pass.py")
    path = folder / f"{fault}.py"
    path.write_text(PROGRAM.format(name=FAULTS[fault]))
    return path
