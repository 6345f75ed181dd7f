"""Pattern `attention_divided_float_mask_training`: written by `ctk gen-patterns`."""

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
n14 = Reshape(aten.view.default, (Var("extra_0"), ANY))
n15 = Op(aten.transpose.int, (n11, Dim(-2), Dim(-1)))
n16 = Op(aten.bmm.default, (n14, n15))
n17 = Reshape(aten.view.default, (n16, ANY))
n18 = Op(aten._to_copy.default, (n17, ANY, torch.strided, ANY, None, False, None))
n19 = Op(aten._softmax_backward_data.default, (n18, n8, Dim(-1), ANY))
n20 = Op(aten._to_copy.default, (n19, ANY, torch.strided, ANY, None, False, None))
n21 = Op(aten.div.Tensor, (n20, Var("scale")))
n22 = Reshape(aten.view.default, (n21, ANY))
n23 = Op(aten.transpose.int, (n2, Dim(-2), Dim(-1)))
n24 = Op(aten.bmm.default, (n22, n23))
n25 = Reshape(aten.view.default, (n24, ANY))
n26 = Op(aten.transpose.int, (n0, Dim(-2), Dim(-1)))
n27 = Op(aten.bmm.default, (n26, n22))
n28 = Reshape(aten.view.default, (n27, ANY))
n29 = Op(aten.transpose.int, (n28, Dim(-2), Dim(-1)))
n30 = Op(aten.transpose.int, (n10, Dim(-2), Dim(-1)))
n31 = Op(aten.bmm.default, (n30, n14))
n32 = Reshape(aten.view.default, (n31, ANY))
PATTERN = (n13, n25, n29, n32)
