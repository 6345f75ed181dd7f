"""Pattern `attention_query_mask_training`: written by `ctk gen-patterns`."""

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
n12 = Reshape(aten.view.default, (Var("extra_0"), ANY))
n13 = Op(aten.transpose.int, (n9, Dim(-2), Dim(-1)))
n14 = Op(aten.bmm.default, (n12, n13))
n15 = Reshape(aten.view.default, (n14, ANY))
n16 = Op(aten._softmax_backward_data.default, (n15, n7, Dim(-1), ANY))
n17 = Reshape(aten.view.default, (n16, ANY))
n18 = Op(aten.transpose.int, (n3, Dim(-2), Dim(-1)))
n19 = Op(aten.bmm.default, (n17, n18))
n20 = Reshape(aten.view.default, (n19, ANY))
n21 = Op(aten.mul.Tensor, (n20, Var("scale")))
n22 = Op(aten.transpose.int, (n1, Dim(-2), Dim(-1)))
n23 = Op(aten.bmm.default, (n22, n17))
n24 = Reshape(aten.view.default, (n23, ANY))
n25 = Op(aten.transpose.int, (n24, Dim(-2), Dim(-1)))
n26 = Op(aten.transpose.int, (n8, Dim(-2), Dim(-1)))
n27 = Op(aten.bmm.default, (n26, n12))
n28 = Reshape(aten.view.default, (n27, ANY))
PATTERN = (n11, n21, n25, n28)
