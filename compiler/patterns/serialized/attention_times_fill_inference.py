"""Pattern `attention_times_fill_inference`: written by `ctk gen-patterns`."""

import torch

from ctk.compiler.patterns.expression import ANY, Dim, Op, Reshape, Var

aten = torch.ops.aten

n0 = Reshape(aten.view.default, (Var("q"), ANY))
n1 = Op(aten.transpose.int, (Var("k"), Dim(-2), Dim(-1)))
n2 = Reshape(aten.view.default, (n1, ANY))
n3 = Op(aten.bmm.default, (n0, n2))
n4 = Reshape(aten.view.default, (n3, ANY))
n5 = Op(aten.mul.Tensor, (n4, Var("scale")))
n6 = Op(aten.masked_fill.Scalar, (n5, Var("mask"), float("-inf")))
n7 = Op(aten._softmax.default, (n6, Dim(-1), False))
n8 = Reshape(aten.view.default, (n7, ANY))
n9 = Reshape(aten.view.default, (Var("v"), ANY))
n10 = Op(aten.bmm.default, (n8, n9))
n11 = Reshape(aten.view.default, (n10, ANY))
PATTERN = (n11,)
