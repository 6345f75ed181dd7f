"""Pattern `attention_query_training`: written by `ctk gen-patterns`."""

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
n11 = Reshape(aten.view.default, (Var("extra_0"), ANY))
n12 = Op(aten.transpose.int, (n8, Dim(-2), Dim(-1)))
n13 = Op(aten.bmm.default, (n11, n12))
n14 = Reshape(aten.view.default, (n13, ANY))
n15 = Op(aten._softmax_backward_data.default, (n14, n6, Dim(-1), ANY))
n16 = Reshape(aten.view.default, (n15, ANY))
n17 = Op(aten.transpose.int, (n3, Dim(-2), Dim(-1)))
n18 = Op(aten.bmm.default, (n16, n17))
n19 = Reshape(aten.view.default, (n18, ANY))
n20 = Op(aten.mul.Tensor, (n19, Var("scale")))
n21 = Op(aten.transpose.int, (n1, Dim(-2), Dim(-1)))
n22 = Op(aten.bmm.default, (n21, n16))
n23 = Reshape(aten.view.default, (n22, ANY))
n24 = Op(aten.transpose.int, (n23, Dim(-2), Dim(-1)))
n25 = Op(aten.transpose.int, (n7, Dim(-2), Dim(-1)))
n26 = Op(aten.bmm.default, (n25, n11))
n27 = Reshape(aten.view.default, (n26, ANY))
PATTERN = (n10, n20, n24, n27)
