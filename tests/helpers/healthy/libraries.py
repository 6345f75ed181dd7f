"""Models of `transformers`, `timm` and torchvision: tiny, of random weights, without a download."""

import contextlib
import importlib
import importlib.util
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor

from tests.helpers.healthy.base import Call, Healthy
from tests.helpers.transformer_models import MODELS, VOCABULARY, Model, build

PACKAGES = ("transformers", "timm", "torchvision")
"""Of the extra `ecosystem`."""

LLAMA = next(model for model in MODELS if model.name == "Llama")
MISTRAL = next(model for model in MODELS if model.name == "Mistral")


def package(name: str) -> Any:
    """Import one of the packages, or a module of one."""
    if importlib.util.find_spec("torchvision") is not None:
        _declare_operators()  # timm and transformers import torchvision
    return importlib.import_module(name)


def _declare_operators() -> None:
    """Declare the operators of torchvision that its import asks for, if they cannot be loaded.

    A wheel that was built for another torch has operators that do not load; no model here calls
    them.
    """
    with contextlib.suppress(Exception):
        importlib.import_module("torchvision")
        return
    schema = "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor"
    for operator in ("nms", "qnms"):
        if not hasattr(torch.ops.torchvision, operator):
            torch.library.define(f"torchvision::{operator}", schema)


def transformer(model: Model, *, train: bool = False) -> Call:
    """Return a model without its cache."""
    called, keywords = build(model, package("transformers"), train=train)
    names = list(keywords)
    values = tuple(each.to(torch.get_default_device()) for each in keywords.values())
    return lambda *given: called(**dict(zip(names, given, strict=True))), values


def causal(model: Model) -> tuple[Any, Any]:
    """Return a causal model with constant weights, and `transformers`."""
    transformers = package("transformers")
    config = getattr(transformers, f"{model.name}Config")(**model.config)
    made = getattr(transformers, f"{model.name}ForCausalLM")(config)
    return made.eval().requires_grad_(False), transformers


def prompt() -> Tensor:
    """Return the tokens of a prompt."""
    return torch.randint(3, VOCABULARY, (2, 6))


def with_cache(model: Model) -> Call:
    """Return a model that returns its logits and the cache that it makes."""
    made, _ = causal(model)

    def run(tokens: Tensor) -> tuple[Tensor, object]:
        found = made(tokens, use_cache=True)
        return found.logits, [(each.keys, each.values) for each in found.past_key_values.layers]

    return run, (prompt(),)


def static_cache() -> Call:
    """Return a model that writes into a cache of a fixed size."""
    made, transformers = causal(LLAMA)

    def run(tokens: Tensor) -> tuple[Tensor, object]:
        cache = transformers.StaticCache(config=made.config, max_cache_len=8)
        found = made(tokens, past_key_values=cache, use_cache=True)
        return found.logits, [each.keys for each in cache.layers]

    return run, (prompt(),)


def generation() -> Call:
    """Return three greedy steps of generation with one cache."""
    made, transformers = causal(LLAMA)

    def run(tokens: Tensor) -> Tensor:
        cache, step, chosen = transformers.DynamicCache(config=made.config), tokens, [tokens]
        for _ in range(3):
            logits = made(step, past_key_values=cache, use_cache=True).logits
            step = logits[:, -1:].argmax(-1)
            chosen.append(step)
        return torch.cat(chosen, 1)

    return run, (prompt(),)


def language_loss() -> Call:
    """Return the loss of a model in training."""
    made, _ = causal(LLAMA)
    made.train().requires_grad_(True)
    return lambda tokens: made(tokens, labels=tokens, use_cache=False).loss, (prompt(),)


def rotary_embedding() -> Call:
    """Return the rotary embedding of a model and its application, alone."""
    made, _ = causal(LLAMA)
    module = package("transformers.models.llama.modeling_llama")

    def run(q: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
        positions = torch.arange(q.shape[2], device=q.device)[None]
        cos, sin = made.model.rotary_emb(q, positions)
        turned: tuple[Tensor, Tensor] = module.apply_rotary_pos_emb(q, k, cos, sin)
        return turned

    return run, (torch.randn(2, 2, 6, 8), torch.randn(2, 1, 6, 8))


def timm_model(name: str) -> Call:
    """Return one of timm's models for tests."""
    size = {"img_size": 32} if name.endswith("vit") else {}
    model: Any = package("timm").create_model(name, num_classes=3, **size)
    return model.eval(), (torch.randn(1, 3, 32, 32),)


def dense_training() -> Call:
    model = package("torchvision.models.densenet").DenseNet(4, (2, 1), 8, num_classes=3)
    return model.train(), (torch.randn(2, 3, 32, 32),)


def vision_transformer() -> Call:
    kinds = package("torchvision.models.vision_transformer")
    model = kinds.VisionTransformer(8, 4, 1, 2, 16, 32, num_classes=3)
    return model.eval(), (torch.randn(2, 3, 8, 8),)


def shuffled_channels() -> Call:
    kinds = package("torchvision.models.shufflenetv2")
    model = kinds.ShuffleNetV2([1, 1, 1], [4, 8, 8, 8, 16], num_classes=3)
    return model.eval(), (torch.randn(2, 3, 32, 32),)


def shifted_windows() -> Call:
    kinds = package("torchvision.models.swin_transformer")
    model = kinds.SwinTransformer([2, 2], 8, [2], [2], [2, 2], num_classes=3)
    return model.eval(), (torch.randn(1, 3, 16, 16),)


def _of(name: str, kind: str, make: Callable[[], Call], *, backward: bool = False) -> Healthy:
    return Healthy(f"{name}_{kind}", make, backward, package=name)


_TIMM = ("vit", "resnet", "efficientnet", "convnext", "byobnet", "nfnet")

PROGRAMS = (
    *(_of("transformers", each.name.lower(), partial(transformer, each)) for each in MODELS),
    _of("transformers", "llama_cache", partial(with_cache, LLAMA)),
    _of("transformers", "sliding_cache", partial(with_cache, MISTRAL)),
    _of("transformers", "static_cache", static_cache),
    _of("transformers", "generation", generation),
    _of("transformers", "language_loss", language_loss, backward=True),
    _of("transformers", "rotary", rotary_embedding),
    *(_of("timm", each, partial(timm_model, f"test_{each}")) for each in _TIMM),
    _of("torchvision", "dense_training", dense_training, backward=True),
    _of("torchvision", "vision_transformer", vision_transformer),
    _of("torchvision", "shuffled_channels", shuffled_channels),
    _of("torchvision", "shifted_windows", shifted_windows),
)
