import pytest
import torch


@pytest.fixture(autouse=True)
def _seed():
    torch.manual_seed(0)


@pytest.fixture(autouse=True, scope="module")
def _fresh_compiler():
    """Dynamo compiles one function a limited number of times, and then runs it in eager."""
    torch.compiler.reset()
