"""A program of several calls, and what a question of the user's asks of it."""

from ctk.toolkit.case.case import Case

PROGRAM = """
import torch

def f(x):
    a = torch.sin(x)
    b = torch.relu(a) + 1
    c = torch.softmax(torch.tanh(b), -1)
    return torch.cos(c) * 2, b

def model():
    return f

def inputs():
    return (torch.linspace(-1, 1, 64).reshape(8, 8),)
"""


def calls(case: Case) -> list[str]:
    nodes = [node for node in case.graph.graph.nodes if node.op.startswith("call_")]
    return [getattr(node.target, "__name__", str(node.target)) for node in nodes]


def has_softmax(case: Case) -> bool:
    return any("softmax" in str(node.target) for node in case.graph.graph.nodes)
