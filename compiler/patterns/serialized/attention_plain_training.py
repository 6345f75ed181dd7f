"""Pattern `attention_plain_training`: written by `ctk gen-patterns`."""

import torch

from ctk.compiler.patterns.expression import ANY, Dim, Op, Reshape, Var

aten = torch.ops.aten

n0 = Reshape(aten.view.default, (Var("q"), ANY))
n1 = Op(aten.transpose.int, (Var("k"), Dim(-2), Dim(-1)))
n2 = Reshape(aten.view.default, (n1, ANY))
n3 = Op(aten.bmm.default, (n0, n2))
n4 = Reshape(aten.view.default, (n3, ANY))
n5 = Op(aten._softmax.default, (n4, Dim(-1), False))
n6 = Reshape(aten.view.default, (n5, ANY))
n7 = Reshape(aten.view.default, (Var("v"), ANY))
n8 = Op(aten.bmm.default, (n6, n7))
n9 = Reshape(aten.view.default, (n8, ANY))
n10 = Reshape(aten.view.default, (Var("extra_0"), ANY))
n11 = Op(aten.transpose.int, (n7, Dim(-2), Dim(-1)))
n12 = Op(aten.bmm.default, (n10, n11))
n13 = Reshape(aten.view.default, (n12, ANY))
n14 = Op(aten._softmax_backward_data.default, (n13, n5, Dim(-1), ANY))
n15 = Reshape(aten.view.default, (n14, ANY))
n16 = Op(aten.transpose.int, (n2, Dim(-2), Dim(-1)))
n17 = Op(aten.bmm.default, (n15, n16))
n18 = Reshape(aten.view.default, (n17, ANY))
n19 = Op(aten.transpose.int, (n0, Dim(-2), Dim(-1)))
n20 = Op(aten.bmm.default, (n19, n15))
n21 = Reshape(aten.view.default, (n20, ANY))
n22 = Op(aten.transpose.int, (n21, Dim(-2), Dim(-1)))
n23 = Op(aten.transpose.int, (n6, Dim(-2), Dim(-1)))
n24 = Op(aten.bmm.default, (n23, n10))
n25 = Reshape(aten.view.default, (n24, ANY))
PATTERN = (n9, n18, n22, n25)
