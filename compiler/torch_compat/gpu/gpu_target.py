"""A GPU, as far as code is made for it."""

import torch

from ctk.compiler.torch_compat.gpu import cuda_launch


def describe_target(device: torch.device) -> str:
    """Return name, capability, size and driver of a device."""
    if device.type != "cuda" or not torch.cuda.is_available():
        return device.type
    found = torch.cuda.get_device_properties(device)
    facts = (found.name, found.major, found.minor, found.multi_processor_count, found.total_memory)
    return f"{' '.join(map(str, facts))} driver {cuda_launch.driver_version()}"
