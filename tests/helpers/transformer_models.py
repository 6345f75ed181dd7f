"""Models of the package `transformers` with small random weights: no download, a second each."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

VOCABULARY, WIDTH, LENGTH = 37, 16, 6
_TEXT: dict[str, Any] = {
    "vocab_size": VOCABULARY,
    "hidden_size": WIDTH,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 32,
    "max_position_embeddings": 16,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
_GROUPED = {**_TEXT, "num_key_value_heads": 1}
_VISION = {
    "hidden_size": WIDTH,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "intermediate_size": 32,
    "image_size": 8,
    "patch_size": 4,
}


@dataclass(frozen=True, slots=True)
class Model:
    """A model and how it is called.

    Attributes:
        name: Prefix of its classes.
        head: The rest of the class's name.
        config: What its configuration is made of.
        inputs: Makes the keywords of one call.
    """

    name: str
    head: str
    config: dict[str, Any]
    inputs: Callable[[], dict[str, Tensor]]


def _tokens() -> dict[str, Tensor]:
    tokens = torch.randint(3, VOCABULARY, (2, LENGTH))
    mask = torch.ones_like(tokens)
    mask[0, -2:] = 0
    return {"input_ids": tokens, "attention_mask": mask}


def _pair() -> dict[str, Tensor]:
    return {**_tokens(), "decoder_input_ids": torch.randint(3, VOCABULARY, (2, 4))}


def _image() -> dict[str, Tensor]:
    return {"pixel_values": torch.randn(2, 3, 8, 8)}


def _sound() -> dict[str, Tensor]:
    tokens = torch.randint(3, VOCABULARY, (2, 4))
    return {"input_features": torch.randn(2, 8, 12), "decoder_input_ids": tokens}


_GPT2 = {
    "vocab_size": VOCABULARY,
    "n_embd": WIDTH,
    "n_layer": 2,
    "n_head": 2,
    "n_positions": 16,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
_T5 = {
    "vocab_size": VOCABULARY,
    "d_model": WIDTH,
    "d_kv": 8,
    "d_ff": 32,
    "num_layers": 1,
    "num_heads": 2,
    "decoder_start_token_id": 0,
    "pad_token_id": 0,
}
_WHISPER = {
    "vocab_size": VOCABULARY,
    "num_mel_bins": 8,
    "d_model": WIDTH,
    "encoder_layers": 1,
    "decoder_layers": 1,
    "encoder_attention_heads": 2,
    "decoder_attention_heads": 2,
    "encoder_ffn_dim": 32,
    "decoder_ffn_dim": 32,
    "max_source_positions": 6,
    "max_target_positions": 8,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "decoder_start_token_id": 1,
    "suppress_tokens": None,
    "begin_suppress_tokens": None,
}
_DISTILBERT = {
    "vocab_size": VOCABULARY,
    "dim": WIDTH,
    "n_layers": 1,
    "n_heads": 2,
    "hidden_dim": 32,
    "max_position_embeddings": 16,
}
_OPT = {**_TEXT, "ffn_dim": 32, "word_embed_proj_dim": WIDTH}
_CLIP = {"text_config": _TEXT, "vision_config": _VISION, "projection_dim": 8}

MODELS = (
    Model("GPT2", "LMHeadModel", _GPT2, _tokens),
    Model("Bert", "ForSequenceClassification", _TEXT, _tokens),
    Model("T5", "ForConditionalGeneration", _T5, _pair),
    Model("Llama", "ForCausalLM", _GROUPED, _tokens),
    Model("Mistral", "ForCausalLM", {**_GROUPED, "sliding_window": 4}, _tokens),
    Model("Mixtral", "ForCausalLM", {**_GROUPED, "num_local_experts": 2}, _tokens),
    Model("ViT", "ForImageClassification", _VISION, _image),
    Model("Whisper", "ForConditionalGeneration", _WHISPER, _sound),
    Model("Roberta", "ForMaskedLM", {**_TEXT, "max_position_embeddings": 20}, _tokens),
    Model("DistilBert", "ForTokenClassification", _DISTILBERT, _tokens),
    Model("OPT", "ForCausalLM", _OPT, _tokens),
    Model("Falcon", "ForCausalLM", {**_TEXT, "alibi": False}, _tokens),
    Model("Gemma2", "ForCausalLM", {**_GROUPED, "head_dim": 8, "sliding_window": 4}, _tokens),
    Model("CLIP", "Model", _CLIP, lambda: {**_tokens(), **_image()}),
)


class Call(nn.Module):
    """A model that is called with keywords and gives its tensors: of its results, what is a float.

    Args:
        model: One of `transformers`.
    """

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, **inputs: Tensor) -> tuple[Tensor, ...]:
        found = (
            self.model(**inputs, use_cache=False) if self.takes_cache() else self.model(**inputs)
        )
        return tuple(each for each in found.to_tuple() if isinstance(each, Tensor))

    def takes_cache(self) -> bool:
        """Return whether the model keeps keys and values when it is not told otherwise."""
        return bool(getattr(self.model.config, "use_cache", False))


def build(model: Model, transformers: Any, *, train: bool) -> tuple[nn.Module, dict[str, Tensor]]:
    """Return a model and the keywords of one call, with the same numbers each time."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        config = getattr(transformers, f"{model.name}Config")(**model.config)
        made = Call(getattr(transformers, f"{model.name}{model.head}")(config))
        return made.train(train), model.inputs()
