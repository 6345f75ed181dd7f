"""Process groups, as functional collectives look them up by name; stand-ins for groups of others.

In torch: the table of names holds weak references, and `FakeProcessGroup` copies the data of its
own rank in place of that of the others.
"""

# pyright: reportPrivateUsage=false, reportAttributeAccessIssue=false

from typing import Any

import torch

_STAND_INS: list[object] = []
"""Keeps the groups that this process has made."""


def place_in_group(name: str) -> tuple[int, int] | None:
    """Return the rank of this process in a group, and the size of the group; None if unknown."""
    if not torch.distributed.is_available():
        return None
    c10d: Any = torch._C._distributed_c10d
    try:
        group = c10d._resolve_process_group(name)
    except RuntimeError:
        return None
    return int(group.rank()), int(group.size())


def stand_in_for_group(name: str, rank: int, size: int) -> None:
    """Make a group of a name, unless there is one: no other process takes part in it.

    A collective gets the data of this rank from each rank; a sum over ranks stays that of one.
    """
    if place_in_group(name) is not None:
        return
    c10d: Any = torch._C._distributed_c10d
    group = c10d.ProcessGroup(c10d.HashStore(), rank, size)
    backend = c10d.FakeProcessGroup._create_internal(rank, size)
    kind = c10d.ProcessGroup.BackendType.CUSTOM
    group._set_default_backend(kind)
    for device in ("cpu", "cuda"):
        group._register_backend(torch.device(device), kind, backend)
    group._set_group_name(name)
    c10d._register_process_group(name, group)
    _STAND_INS.append(group)
