"""Pattern `attention_divided_where_inference`: written by `ctk gen-patterns`."""

import torch

from ctk.compiler.patterns.expression import ANY, Dim, Op, Reshape, Var

aten = torch.ops.aten

n0 = Reshape(aten.view.default, (Var("q"), ANY))
n1 = Op(aten.transpose.int, (Var("k"), Dim(-2), Dim(-1)))
n2 = Reshape(aten.view.default, (n1, ANY))
n3 = Op(aten.bmm.default, (n0, n2))
n4 = Reshape(aten.view.default, (n3, ANY))
n5 = Op(aten.div.Tensor, (n4, Var("scale")))
n6 = Op(aten.scalar_tensor.default, (float("-inf"), ANY, torch.strided, ANY, None))
n7 = Op(aten.where.self, (Var("mask"), n5, n6))
n8 = Op(aten._softmax.default, (n7, Dim(-1), False))
n9 = Reshape(aten.view.default, (n8, ANY))
n10 = Reshape(aten.view.default, (Var("v"), ANY))
n11 = Op(aten.bmm.default, (n9, n10))
n12 = Reshape(aten.view.default, (n11, ANY))
PATTERN = (n12,)
