"""Pattern `attention_plain_mask_inference`: written by `ctk gen-patterns`."""

import torch

from ctk.compiler.patterns.expression import ANY, Dim, Op, Reshape, Var

aten = torch.ops.aten

n0 = Reshape(aten.view.default, (Var("q"), ANY))
n1 = Op(aten.transpose.int, (Var("k"), Dim(-2), Dim(-1)))
n2 = Reshape(aten.view.default, (n1, ANY))
n3 = Op(aten.bmm.default, (n0, n2))
n4 = Reshape(aten.view.default, (n3, ANY))
n5 = Op(aten.add.Tensor, (n4, Var("mask"), 1))
n6 = Op(aten._softmax.default, (n5, Dim(-1), False))
n7 = Reshape(aten.view.default, (n6, ANY))
n8 = Reshape(aten.view.default, (Var("v"), ANY))
n9 = Op(aten.bmm.default, (n7, n8))
n10 = Reshape(aten.view.default, (n9, ANY))
PATTERN = (n10,)
