"""The state that a trace reads besides its graph: modes, switches and settings, each as a text.

    grad mode: True    autocast.cpu: True torch.bfloat16    sdp.flash: True    ...

Names that this version of torch lacks are left out. Settings of torch's compilers are one text for
each module, without names of folders. Modes under which a trace must not be stored are in
`reasons`.

Source: torch's `AOTAutogradCacheDetails` and `FxGraphHashDetails` read grad mode, autocast,
deterministic algorithms, matmul precision and settings. The rest is added here.
"""

# pyright: reportPrivateUsage=false, reportAttributeAccessIssue=false

import importlib
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from torch.autograd import forward_ad

from ctk.compiler.torch_compat.aot.autograd import is_in_compiled_autograd
from ctk.compiler.torch_compat.process.settings import MODULES

_READ = """
    grad mode                     is_grad_enabled
    inference mode                is_inference_mode_enabled
    default dtype                 get_default_dtype
    default device                get_default_device
    deterministic                 are_deterministic_algorithms_enabled
    deterministic.warn only       is_deterministic_algorithms_warn_only_enabled
    deterministic.fill            utils.deterministic.fill_uninitialized_memory
    matmul precision              get_float32_matmul_precision
    anomaly mode                  is_anomaly_enabled
    autocast.cache                is_autocast_cache_enabled
    forward-mode gradients        _C._is_fwd_grad_enabled
    nnpack                        _C._get_nnpack_enabled
    sdp.flash                     _C._get_flash_sdp_enabled
    sdp.math                      _C._get_math_sdp_enabled
    sdp.efficient                 _C._get_mem_efficient_sdp_enabled
    sdp.cudnn                     _C._get_cudnn_sdp_enabled
    sdp.overrideable              _C._get_overrideable_sdp_enabled
    sdp.math in half              _C._get_math_sdp_allow_fp16_bf16_reduction
    cudnn                         backends.cudnn.enabled
    cudnn.benchmark               backends.cudnn.benchmark
    cudnn.deterministic           backends.cudnn.deterministic
    cudnn.tf32                    _C._get_cudnn_allow_tf32
    cuda.tf32                     _C._get_cublas_allow_tf32
    cuda.fp16 sums                backends.cuda.matmul.allow_fp16_reduced_precision_reduction
    cuda.bf16 sums                backends.cuda.matmul.allow_bf16_reduced_precision_reduction
    cuda.fp16 accumulation        backends.cuda.matmul.allow_fp16_accumulation
    mkldnn                        _C._get_mkldnn_enabled
    mkldnn.deterministic          _C._get_mkldnn_deterministic
    mkldnn.tf32                   _C._get_onednn_allow_tf32
    precision.generic             backends.fp32_precision
    precision.cuda.matmul         backends.cuda.matmul.fp32_precision
    precision.cudnn.conv          backends.cudnn.conv.fp32_precision
    precision.cudnn.rnn           backends.cudnn.rnn.fp32_precision
    precision.mkldnn.matmul       backends.mkldnn.matmul.fp32_precision
    precision.mkldnn.conv         backends.mkldnn.conv.fp32_precision
    precision.mkldnn.rnn          backends.mkldnn.rnn.fp32_precision
    mha fast path                 backends.mha.get_fastpath_enabled
    einsum                        backends.opt_einsum.enabled
    einsum.strategy               backends.opt_einsum.strategy
    quantized engine              backends.quantized.engine
"""

_TORCH = f"{Path(torch.__file__).parent}{os.sep}"

_FOLDERS = ("_dir", "_dir_root", "_path", "_folder")


def ambient_state() -> dict[str, str]:
    """Return each mode and switch of this thread and process that a trace may read."""
    state = {name: str(value) for name, value in _readings()}
    for device in torch._C._autocast_supported_devices():
        dtype = torch.get_autocast_dtype(device)  # even if only the graph turns autocast on
        state[f"autocast.{device}"] = f"{torch.is_autocast_enabled(device)} {dtype}"
    return state


def compiler_settings() -> dict[str, Mapping[str, object]]:
    """Return the settings of torch's compilers by module; folders are left out."""
    found: dict[str, Mapping[str, object]] = {}
    for name in MODULES:
        values: Mapping[str, object] = importlib.import_module(name).get_config_copy()
        found[name] = {key: each for key, each in values.items() if not key.endswith(_FOLDERS)}
    return found


def reasons() -> Iterator[str]:
    """Yield why nothing that is traced now can be kept: transforms, modes, replaced kernels."""
    if torch._C._functorch.get_dynamic_layer_stack_depth():
        yield "a transform of functorch (vmap, grad) is entered"
    if forward_ad._current_level >= 0:
        yield "forward-mode differentiation is on"
    if is_in_compiled_autograd():
        yield "compiled autograd traces this backward"
    if _modes_on():
        yield "a mode of the program dispatches operators"
    overridden = sorted(name for name in torch.library._impls if _is_override(name))
    for name in overridden[:1]:
        yield f"the program has registered a kernel of torch's own operator {name}"


def _modes_on() -> bool:
    """Return whether a mode of the program is on; a default device, part of the state, is one."""
    device = importlib.import_module("torch.utils._device").DeviceContext
    stack = importlib.import_module("torch.overrides")._get_current_function_mode_stack()
    if any(not isinstance(mode, device) for mode in stack):
        return True
    return torch._C._len_torch_dispatch_stack() > 0


def _is_override(name: str) -> bool:
    """Return whether `aten/operator/key` is a kernel of the program that traces go through.

    torch has one itself since 2.14: `aten/to_dense/PythonTLSSnapshot`.
    """
    namespace, _, rest = name.partition("/")
    operator, _, key = rest.rpartition("/")
    if namespace != "aten" or not key.startswith(("Auto", "Composite", "Functional", "Python")):
        return False
    kernels = torch._C._dispatch_dump(f"aten::{operator}").splitlines()
    return not any(line.startswith(f"{key}: registered at {_TORCH}") for line in kernels)


def _readings() -> Iterator[tuple[str, object]]:
    for line in _READ.strip().splitlines():
        name, _, path = line.strip().rpartition(" ")
        value: Any = torch
        try:
            for part in path.split("."):
                value = getattr(value, part)
            yield name.strip(), value() if callable(value) else value
        except (AttributeError, RuntimeError):  # this version has not, or this build
            continue
