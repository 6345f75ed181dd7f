"""Pattern `attention_divided_float_mask_inference`: written by `ctk gen-patterns`."""

import torch

from ctk.compiler.patterns.expression import ANY, Dim, Op, Reshape, Var

aten = torch.ops.aten

n0 = Reshape(aten.view.default, (Var("q"), ANY))
n1 = Op(aten.transpose.int, (Var("k"), Dim(-2), Dim(-1)))
n2 = Reshape(aten.view.default, (n1, ANY))
n3 = Op(aten.bmm.default, (n0, n2))
n4 = Reshape(aten.view.default, (n3, ANY))
n5 = Op(aten.div.Tensor, (n4, Var("scale")))
n6 = Op(aten.add.Tensor, (n5, Var("mask"), 1))
n7 = Op(aten._to_copy.default, (n6, ANY, None, None, None, False, None))
n8 = Op(aten._softmax.default, (n7, Dim(-1), False))
n9 = Op(aten._to_copy.default, (n8, ANY, None, None, None, False, None))
n10 = Reshape(aten.view.default, (n9, ANY))
n11 = Reshape(aten.view.default, (Var("v"), ANY))
n12 = Op(aten.bmm.default, (n10, n11))
n13 = Reshape(aten.view.default, (n12, ANY))
PATTERN = (n13,)
