"""Models of Hugging Face, small and with random weights."""

import pytest
import torch
from netlib import backends

transformers = pytest.importorskip("transformers", reason="transformers is not installed")


def small(name, **more):
    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    sizes |= {"vocab_size": 32, "intermediate_size": 32}
    config = getattr(transformers, f"{name}Config")(**sizes, **more)
    return getattr(transformers, f"{name}Model")(config).eval()


def last_state(model, backend):
    with torch.no_grad():
        return torch.compile(model, backend=backend)(torch.arange(6)[None]).last_hidden_state


def test_bert():
    assert last_state(small("Bert"), "aot_eager").shape == (1, 6, 16)


def test_llama():
    model = small("Llama", num_key_value_heads=1, use_cache=False)
    assert last_state(model, backends.fast_silu).shape == (1, 6, 16)
