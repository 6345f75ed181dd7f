"""Pattern `attention_plain_inference`: written by `ctk gen-patterns`."""

import torch

from ctk.compiler.patterns.expression import ANY, Dim, Op, Reshape, Var

aten = torch.ops.aten

n0 = Reshape(aten.view.default, (Var("q"), ANY))
n1 = Op(aten.transpose.int, (Var("k"), Dim(-2), Dim(-1)))
n2 = Reshape(aten.view.default, (n1, ANY))
n3 = Op(aten.bmm.default, (n0, n2))
n4 = Reshape(aten.view.default, (n3, ANY))
n5 = Op(aten._softmax.default, (n4, Dim(-1), False))
n6 = Reshape(aten.view.default, (n5, ANY))
n7 = Reshape(aten.view.default, (Var("v"), ANY))
n8 = Op(aten.bmm.default, (n6, n7))
n9 = Reshape(aten.view.default, (n8, ANY))
PATTERN = (n9,)
