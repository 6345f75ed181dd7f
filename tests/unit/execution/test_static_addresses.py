"""A target is told which tensors have static addresses, as Dynamo tells it."""

from pathlib import Path

import torch
from torch import nn

from ctk.toolkit.case.store import load_case, save_case
from ctk.toolkit.execution.execute import run_compiled
from ctk.toolkit.importers import load_cases
from ctk.toolkit.options import CaseOptions

BACKEND = """
import torch
from pathlib import Path
from functorch.compile import make_boxed_func
from torch._dynamo.backends.common import aot_autograd

def compiler(gm, inputs):
    found = torch._guards.TracingContext.get().fw_metadata.static_input_indices
    Path(__file__).with_suffix(".txt").write_text(repr(found))
    return make_boxed_func(gm.forward)

backend = aot_autograd(fw_compiler=compiler)
"""


class Net(nn.Module):
    """The input comes first, so that the parameters do not."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(3, 3, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.linear(x.sin())


def test_a_compiler_sees_static_addresses(tmp_path: Path):
    (tmp_path / "own.py").write_text(BACKEND)
    target = f"{tmp_path / 'own.py'}:backend"
    (case,) = load_cases(Net(), [torch.ones(2, 3)], CaseOptions(target=target))
    loaded = load_case(save_case(case, tmp_path / "case"), trust=True)
    for each, seen in ((case, tmp_path), (loaded, tmp_path / "case" / "sources")):
        assert run_compiled(each).error is None
        assert (seen / "own.txt").read_text() == "[1]"
