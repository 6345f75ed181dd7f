"""Pattern `attention_times_fill_training`: written by `ctk gen-patterns`."""

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
n12 = Reshape(aten.view.default, (Var("extra_0"), ANY))
n13 = Op(aten.transpose.int, (n9, Dim(-2), Dim(-1)))
n14 = Op(aten.bmm.default, (n12, n13))
n15 = Reshape(aten.view.default, (n14, ANY))
n16 = Op(aten._softmax_backward_data.default, (n15, n7, Dim(-1), ANY))
n17 = Op(aten.masked_fill.Scalar, (n16, Var("mask"), 0))
n18 = Op(aten.mul.Tensor, (n17, Var("scale")))
n19 = Reshape(aten.view.default, (n18, ANY))
n20 = Op(aten.transpose.int, (n2, Dim(-2), Dim(-1)))
n21 = Op(aten.bmm.default, (n19, n20))
n22 = Reshape(aten.view.default, (n21, ANY))
n23 = Op(aten.transpose.int, (n0, Dim(-2), Dim(-1)))
n24 = Op(aten.bmm.default, (n23, n19))
n25 = Reshape(aten.view.default, (n24, ANY))
n26 = Op(aten.transpose.int, (n25, Dim(-2), Dim(-1)))
n27 = Op(aten.transpose.int, (n8, Dim(-2), Dim(-1)))
n28 = Op(aten.bmm.default, (n27, n12))
n29 = Reshape(aten.view.default, (n28, ANY))
PATTERN = (n11, n22, n26, n29)
