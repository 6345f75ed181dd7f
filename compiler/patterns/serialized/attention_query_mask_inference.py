"""Pattern `attention_query_mask_inference`: written by `ctk gen-patterns`."""

import torch

from ctk.compiler.patterns.expression import ANY, Dim, Op, Reshape, Var

aten = torch.ops.aten

n0 = Op(aten.mul.Tensor, (Var("q"), Var("scale")))
n1 = Reshape(aten.view.default, (n0, ANY))
n2 = Op(aten.transpose.int, (Var("k"), Dim(-2), Dim(-1)))
n3 = Reshape(aten.view.default, (n2, ANY))
n4 = Op(aten.bmm.default, (n1, n3))
n5 = Reshape(aten.view.default, (n4, ANY))
n6 = Op(aten.add.Tensor, (n5, Var("mask"), 1))
n7 = Op(aten._softmax.default, (n6, Dim(-1), False))
n8 = Reshape(aten.view.default, (n7, ANY))
n9 = Reshape(aten.view.default, (Var("v"), ANY))
n10 = Op(aten.bmm.default, (n8, n9))
n11 = Reshape(aten.view.default, (n10, ANY))
PATTERN = (n11,)
