"""Pattern `attention_times_mask_training`: written by `ctk gen-patterns`."""

import torch

from ctk.compiler.patterns.expression import ANY, Dim, Op, Reshape, Var

aten = torch.ops.aten

n0 = Reshape(aten.view.default, (Var("q"), ANY))
n1 = Op(aten.transpose.int, (Var("k"), Dim(-2), Dim(-1)))
n2 = Reshape(aten.view.default, (n1, ANY))
n3 = Op(aten.bmm.default, (n0, n2))
n4 = Reshape(aten.view.default, (n3, ANY))
n5 = Op(aten.mul.Tensor, (n4, Var("scale")))
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
n17 = Op(aten.mul.Tensor, (n16, Var("scale")))
n18 = Reshape(aten.view.default, (n17, ANY))
n19 = Op(aten.transpose.int, (n2, Dim(-2), Dim(-1)))
n20 = Op(aten.bmm.default, (n18, n19))
n21 = Reshape(aten.view.default, (n20, ANY))
n22 = Op(aten.transpose.int, (n0, Dim(-2), Dim(-1)))
n23 = Op(aten.bmm.default, (n22, n18))
n24 = Reshape(aten.view.default, (n23, ANY))
n25 = Op(aten.transpose.int, (n24, Dim(-2), Dim(-1)))
n26 = Op(aten.transpose.int, (n8, Dim(-2), Dim(-1)))
n27 = Op(aten.bmm.default, (n26, n12))
n28 = Reshape(aten.view.default, (n27, ANY))
PATTERN = (n11, n21, n25, n28)
