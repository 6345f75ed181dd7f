import pytest
import torch
from netlib import backends


def running_sum(x):
    return x.cumsum(0)


def test_scans_are_refused():
    with pytest.raises(Exception, match="no kernel"):
        torch.compile(running_sum, backend=backends.no_scans)(torch.ones(3))


def test_sum_is_compiled():
    compiled = torch.compile(lambda x: x.sum(), backend=backends.no_scans)
    assert compiled(torch.ones(3)) == 3


@pytest.mark.xfail(reason="scans have no kernel yet", strict=True)
def test_running_sum():
    assert torch.compile(running_sum, backend=backends.no_scans)(torch.ones(3))[-1] == 3


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_on_a_gpu():
    compiled = torch.compile(torch.sin)
    x = torch.ones(3, device="cuda")
    assert torch.allclose(compiled(x), torch.sin(x))
