"""Pattern `attention_divided_dropout_training`: written by `ctk gen-patterns`."""

import operator

import torch

from ctk.compiler.patterns.expression import ANY, Dim, Op, Reshape, Var

aten = torch.ops.aten

n0 = Reshape(aten.view.default, (Var("q"), ANY))
n1 = Op(aten.transpose.int, (Var("k"), Dim(-2), Dim(-1)))
n2 = Reshape(aten.view.default, (n1, ANY))
n3 = Op(aten.bmm.default, (n0, n2))
n4 = Reshape(aten.view.default, (n3, ANY))
n5 = Op(aten.div.Tensor, (n4, Var("scale")))
n6 = Op(aten._softmax.default, (n5, Dim(-1), False))
n7 = Op(aten.native_dropout.default, (n6, Var("p"), True))
n8 = Op(operator.getitem, (n7, 0))
n9 = Reshape(aten.view.default, (n8, ANY))
n10 = Reshape(aten.view.default, (Var("v"), ANY))
n11 = Op(aten.bmm.default, (n9, n10))
n12 = Reshape(aten.view.default, (n11, ANY))
n13 = Reshape(aten.view.default, (Var("extra_0"), ANY))
n14 = Op(aten.transpose.int, (n10, Dim(-2), Dim(-1)))
n15 = Op(aten.bmm.default, (n13, n14))
n16 = Reshape(aten.view.default, (n15, ANY))
n17 = Op(operator.getitem, (n7, 1))
n18 = Op(aten.native_dropout_backward.default, (n16, n17, ANY))
n19 = Op(aten._softmax_backward_data.default, (n18, n6, Dim(-1), ANY))
n20 = Op(aten.div.Tensor, (n19, Var("scale")))
n21 = Reshape(aten.view.default, (n20, ANY))
n22 = Op(aten.transpose.int, (n2, Dim(-2), Dim(-1)))
n23 = Op(aten.bmm.default, (n21, n22))
n24 = Reshape(aten.view.default, (n23, ANY))
n25 = Op(aten.transpose.int, (n0, Dim(-2), Dim(-1)))
n26 = Op(aten.bmm.default, (n25, n21))
n27 = Reshape(aten.view.default, (n26, ANY))
n28 = Op(aten.transpose.int, (n27, Dim(-2), Dim(-1)))
n29 = Op(aten.transpose.int, (n9, Dim(-2), Dim(-1)))
n30 = Op(aten.bmm.default, (n29, n13))
n31 = Reshape(aten.view.default, (n30, ANY))
PATTERN = (n12, n24, n28, n31)
