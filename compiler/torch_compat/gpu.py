"""A GPU, as far as code is made for it."""

# What pyright says of private names is what this package is for.
# pyright: reportPrivateUsage=false, reportAttributeAccessIssue=false

import torch


def described(device: torch.device) -> str:
    """Return name, capability, size and driver of a device.

    Seen in torch 2.11 and 2.13: `torch._C._cuda_getDriverVersion`.
    """
    if device.type != "cuda" or not torch.cuda.is_available():
        return device.type
    found = torch.cuda.get_device_properties(device)
    facts = (found.name, found.major, found.minor, found.multi_processor_count, found.total_memory)
    return f"{' '.join(map(str, facts))} driver {torch._C._cuda_getDriverVersion()}"
