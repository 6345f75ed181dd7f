"""The classes of operators: of `torch.ops.aten.add.Tensor`, and of `torch.ops.aten.add`.

They are read from public operators, because much of ctk needs them as soon as it is imported.
"""

from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from torch._ops import OpOverload as OpOverload
    from torch._ops import OpOverloadPacket as OpOverloadPacket
else:
    OpOverload = type(torch.ops.aten.add.Tensor)
    OpOverloadPacket = type(torch.ops.aten.add)

Operator = OpOverload | OpOverloadPacket
