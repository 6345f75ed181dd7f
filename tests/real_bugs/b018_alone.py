"""X[randperm(n)] crashes the joint-graph pattern matcher.

Source: pytorch/pytorch#188223. Culprit: joint_graph_passes: randperm_index pattern
(pattern_matcher, unused input).
"""

import torch
import torch.nn as nn

CULPRIT = r"joint/.*randperm"


class M(nn.Module):
    def forward(self, x):
        return x[torch.randperm(10)]


def model():
    torch.manual_seed(0)
    return M().eval()


def inputs():
    torch.manual_seed(1)
    return (torch.rand(32, 8),)
