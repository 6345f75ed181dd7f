"""Models of transformers, torchvision, timm and torch with random weights, and their inputs.

Attention is written out (`eager`), so that a compiler has to find it. Each model has a small size,
of which a CPU takes milliseconds, and a large one for a GPU. Needs the packages of
`docs/how-to/ecosystem.md`, and timm.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from benchmarks import programs

Made = tuple[nn.Module, Sequence[Tensor]]
Maker = Callable[[bool], Made]
"""Makes a model and its inputs: large ones if asked."""

TEXT: Mapping[str, Any] = {
    "vocab_size": 1000, "hidden_size": 256, "d_model": 256, "dim": 256, "n_embd": 256,
    "num_hidden_layers": 4, "num_layers": 4, "n_layers": 4, "n_layer": 4, "encoder_layers": 4,
    "decoder_layers": 4, "num_attention_heads": 8, "num_heads": 8, "n_heads": 8, "n_head": 8,
    "encoder_attention_heads": 8, "decoder_attention_heads": 8, "intermediate_size": 1024,
    "d_ff": 1024, "d_kv": 32, "hidden_dim": 1024, "encoder_ffn_dim": 1024, "decoder_ffn_dim": 1024,
    "max_position_embeddings": 256, "attn_implementation": "eager", "use_cache": False,
    "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 1,
}  # fmt: skip
LARGER: Mapping[int, int] = {1000: 32000, 256: 1024, 4: 6, 8: 16, 1024: 4096, 32: 64}
"""Sizes of large language models by those of small ones: words, width, layers, heads, ..."""


class Called(nn.Module):
    """A model of transformers as a function of tensors: its first result."""

    def __init__(self, model: nn.Module, *names: str) -> None:
        super().__init__()
        self.model, self.names = model, names

    def forward(self, *values: Tensor) -> Tensor:
        return self.model(**dict(zip(self.names, values, strict=True)))[0]


def text(name: str, head: str, *names: str, **changed: Any) -> Maker:
    """Return a maker of a language model over 4 x 128 tokens, or 8 x 512."""

    def make(is_large: bool) -> Made:
        import transformers

        sizes = {**TEXT, **changed}
        if is_large:
            sizes = {key: LARGER.get(size, size) for key, size in sizes.items()}
        config = getattr(transformers, f"{name}Config")(**sizes)
        model = Called(getattr(transformers, f"{name}{head}")(config), *names)
        tokens = torch.randint(3, 1000, (8, 512) if is_large else (4, 128))
        mask = torch.ones_like(tokens)
        mask[0, 100:] = 0
        given = {"attention_mask": mask}
        return model, [given.get(each, tokens) for each in names]

    return make


def images(size: int, is_large: bool) -> list[Tensor]:
    """Return 4 images of a size, or 32 of 224 x 224."""
    return [torch.randn(32, 3, 224, 224) if is_large else torch.randn(4, 3, size, size)]


def vision(name: str, size: int = 96, **options: Any) -> Maker:
    """Return a maker of a model of torchvision over images."""

    def make(is_large: bool) -> Made:
        import torchvision

        model = getattr(torchvision.models, name)(weights=None, **options)
        return model, images(size, is_large)

    return make


def timm(name: str, size: int = 96, **options: Any) -> Maker:
    """Return a maker of a model of timm over images."""

    def make(is_large: bool) -> Made:
        from timm import create_model

        sizes = {key: 224 if is_large else value for key, value in options.items()}
        return create_model(name, **sizes), images(size, is_large)

    return make


def own(name: str) -> Maker:
    """Return a maker of a model of `programs.py`, over an input with 16 times the rows if large."""

    def make(is_large: bool) -> Made:
        layer, (rows, *rest) = next(each[1:] for each in programs.MODELS if each[0] == name)
        return layer(), [torch.randn(rows * (16 if is_large else 1), *rest)]

    return make


def vit(is_large: bool) -> Made:
    """Return a vision transformer of transformers."""
    import transformers

    width = 768 if is_large else 192
    config = transformers.ViTConfig(
        hidden_size=width, num_hidden_layers=4, num_attention_heads=width // 32,
        intermediate_size=4 * width, image_size=224 if is_large else 96, patch_size=16,
        attn_implementation="eager",
    )  # fmt: skip
    return Called(transformers.ViTModel(config), "pixel_values"), images(96, is_large)


def lstm(is_large: bool) -> Made:
    """Return a recurrent network of torch."""
    width = 512 if is_large else 128

    class Network(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.lstm = nn.LSTM(width // 2, width, 2, batch_first=True)
            self.head = nn.Linear(width, 10)

        def forward(self, x: Tensor) -> Tensor:
            return self.head(self.lstm(x)[0][:, -1])

    return Network(), [torch.randn(width // 16, 32, width // 2)]


class Relu(nn.Module):
    """A function in each of its calls: the quantizer refuses a module that is called twice."""

    def forward(self, x: Tensor) -> Tensor:
        return nn.functional.relu(x)


def quantized_resnet(is_large: bool) -> Made:
    """Return a ResNet-18 whose layers torchao's PT2E quantizer made 8-bit."""
    import torchvision
    from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e
    from torchao.quantization.pt2e.quantizer import x86_inductor_quantizer as x86

    model, inputs = torchvision.models.resnet18(weights=None).eval(), images(96, is_large)
    for block in model.modules():
        if isinstance(block, torchvision.models.resnet.BasicBlock):
            block.relu = Relu()
    exported = torch.export.export(model, tuple(inputs)).module()
    quantizer = x86.X86InductorQuantizer()
    quantizer.set_global(x86.get_default_x86_inductor_quantization_config())
    prepared = prepare_pt2e(exported, quantizer)
    prepared(*inputs)
    return convert_pt2e(prepared), inputs


IDS, MASK = "input_ids", "attention_mask"
MODELS: Mapping[str, tuple[Maker, Mapping[str, object]]] = {
    **{name: (own(name), {}) for name, *_ in programs.MODELS},
    "BERT": (text("Bert", "Model", IDS, MASK), {}),
    "RoBERTa": (text("Roberta", "Model", IDS, MASK), {}),
    "DistilBERT": (text("DistilBert", "Model", IDS, MASK), {}),
    "ELECTRA": (text("Electra", "Model", IDS, MASK), {}),
    "GPT-2": (text("GPT2", "LMHeadModel", IDS, MASK), {}),
    "OPT": (text("OPT", "ForCausalLM", IDS, MASK, word_embed_proj_dim=256, ffn_dim=1024), {}),
    "T5": (text("T5", "ForConditionalGeneration", IDS, MASK, "decoder_input_ids"), {}),
    "MBart": (text("MBart", "Model", IDS, MASK), {}),
    "Llama": (text("Llama", "ForCausalLM", IDS, MASK, num_key_value_heads=2), {}),
    "Mistral": (text("Mistral", "ForCausalLM", IDS, MASK, num_key_value_heads=2), {}),
    "Qwen2": (text("Qwen2", "ForCausalLM", IDS, MASK, num_key_value_heads=2), {}),
    "ViT": (vit, {}),
    "ResNet-18": (vision("resnet18"), {}),
    "ResNet-50": (vision("resnet50"), {}),
    "MobileNet": (vision("mobilenet_v3_small"), {}),
    "EfficientNet": (vision("efficientnet_b0"), {}),
    "DenseNet": (vision("densenet121"), {}),
    "ShuffleNet": (vision("shufflenet_v2_x1_0"), {}),
    "VGG": (vision("vgg11_bn", 64), {}),
    "Swin": (vision("swin_t", 64), {}),
    "ConvNeXt": (vision("convnext_tiny", 64), {}),
    "DeiT": (timm("deit_tiny_patch16_224", img_size=96), {}),
    "MLP-Mixer": (timm("mixer_s32_224", img_size=96), {}),
    "RegNet": (timm("regnety_002"), {}),
    "ResMLP": (timm("resmlp_12_224", img_size=96), {}),
    "LSTM": (lstm, {}),
    "quantized ResNet": (quantized_resnet, {"freezing": True}),
}
"""A maker of each model with its inputs, and the options of both compilers."""
