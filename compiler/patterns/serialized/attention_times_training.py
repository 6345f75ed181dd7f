"""Pattern `attention_times_training`: written by `ctk gen-patterns`."""

import torch

from ctk.compiler.patterns.expression import ANY, Dim, Op, Reshape, Var

aten = torch.ops.aten

n0 = Reshape(aten.view.default, (Var("q"), ANY))
n1 = Op(aten.transpose.int, (Var("k"), Dim(-2), Dim(-1)))
n2 = Reshape(aten.view.default, (n1, ANY))
n3 = Op(aten.bmm.default, (n0, n2))
n4 = Reshape(aten.view.default, (n3, ANY))
n5 = Op(aten.mul.Tensor, (n4, Var("scale")))
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
n16 = Op(aten.mul.Tensor, (n15, Var("scale")))
n17 = Reshape(aten.view.default, (n16, ANY))
n18 = Op(aten.transpose.int, (n2, Dim(-2), Dim(-1)))
n19 = Op(aten.bmm.default, (n17, n18))
n20 = Reshape(aten.view.default, (n19, ANY))
n21 = Op(aten.transpose.int, (n0, Dim(-2), Dim(-1)))
n22 = Op(aten.bmm.default, (n21, n17))
n23 = Reshape(aten.view.default, (n22, ANY))
n24 = Op(aten.transpose.int, (n23, Dim(-2), Dim(-1)))
n25 = Op(aten.transpose.int, (n7, Dim(-2), Dim(-1)))
n26 = Op(aten.bmm.default, (n25, n11))
n27 = Reshape(aten.view.default, (n26, ANY))
PATTERN = (n10, n20, n24, n27)
