"""A causal language model of `transformers` with random weights, as a program and as a script.

`ctk check` and `ctk diagnose` take `model()` and `inputs()`: one training step's loss. As a script,
the model generates text, so that `ctk run` sees prefill and decoding with its growing cache.
"""

from collections.abc import Callable

import torch
from torch import Tensor
from transformers import OPTConfig, OPTForCausalLM


def network() -> OPTForCausalLM:
    torch.manual_seed(0)
    config = OPTConfig(
        vocab_size=64,
        hidden_size=32,
        word_embed_proj_dim=32,
        ffn_dim=64,
        num_hidden_layers=2,
        num_attention_heads=2,
        max_position_embeddings=32,
        dropout=0.0,
    )
    return OPTForCausalLM(config)


def model() -> Callable[[Tensor], Tensor]:
    """Return the loss as a function: the model takes keyword arguments."""
    net = network()
    return lambda tokens: net(input_ids=tokens, labels=tokens).loss


def inputs() -> tuple[Tensor, ...]:
    torch.manual_seed(1)
    return (torch.randint(4, 64, (2, 8)),)


def main() -> None:
    net = network().eval()
    net.forward = torch.compile(net.forward, backend="ctk")
    (tokens,) = inputs()
    mask = torch.ones_like(tokens)
    text = net.generate(tokens, attention_mask=mask, max_new_tokens=4, do_sample=False)
    print(f"generated {tuple(text.shape)}")


if __name__ == "__main__":
    main()
