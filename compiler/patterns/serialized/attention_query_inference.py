"""Pattern `attention_query_inference`: written by `ctk gen-patterns`."""

import torch

from ctk.compiler.patterns.expression import ANY, Dim, Op, Reshape, Var

aten = torch.ops.aten

n0 = Op(aten.mul.Tensor, (Var("q"), Var("scale")))
n1 = Reshape(aten.view.default, (n0, ANY))
n2 = Op(aten.transpose.int, (Var("k"), Dim(-2), Dim(-1)))
n3 = Reshape(aten.view.default, (n2, ANY))
n4 = Op(aten.bmm.default, (n1, n3))
n5 = Reshape(aten.view.default, (n4, ANY))
n6 = Op(aten._softmax.default, (n5, Dim(-1), False))
n7 = Reshape(aten.view.default, (n6, ANY))
n8 = Reshape(aten.view.default, (Var("v"), ANY))
n9 = Op(aten.bmm.default, (n7, n8))
n10 = Reshape(aten.view.default, (n9, ANY))
PATTERN = (n10,)
