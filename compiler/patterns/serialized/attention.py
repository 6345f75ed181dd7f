"""Patterns of the family `attention`: written by `ctk gen-patterns`."""

import operator

import torch

from ctk.compiler.patterns.expression import ANY, Dim, Op, Reshape, Var, with_target

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
attention_divided_dropout_training = (n12, n24, n28, n31)

n32 = Op(aten.masked_fill.Scalar, (n5, Var("mask"), float("-inf")))
n33 = Op(aten._softmax.default, (n32, Dim(-1), False))
n34 = Reshape(aten.view.default, (n33, ANY))
n35 = Op(aten.bmm.default, (n34, n10))
n36 = Reshape(aten.view.default, (n35, ANY))
attention_divided_fill_inference = (n36,)

n37 = Op(aten._softmax_backward_data.default, (n16, n33, Dim(-1), ANY))
n38 = Op(aten.masked_fill.Scalar, (n37, Var("mask"), 0))
n39 = Op(aten.div.Tensor, (n38, Var("scale")))
n40 = Reshape(aten.view.default, (n39, ANY))
n41 = Op(aten.bmm.default, (n40, n22))
n42 = Reshape(aten.view.default, (n41, ANY))
n43 = Op(aten.bmm.default, (n25, n40))
n44 = Reshape(aten.view.default, (n43, ANY))
n45 = Op(aten.transpose.int, (n44, Dim(-2), Dim(-1)))
n46 = Op(aten.transpose.int, (n34, Dim(-2), Dim(-1)))
n47 = Op(aten.bmm.default, (n46, n13))
n48 = Reshape(aten.view.default, (n47, ANY))
attention_divided_fill_training = (n36, n42, n45, n48)

n49 = Op(aten._to_copy.default, (n5, ANY, None, None, None, False, None))
n50 = Op(aten._softmax.default, (n49, Dim(-1), False))
n51 = Op(aten._to_copy.default, (n50, ANY, None, None, None, False, None))
n52 = Reshape(aten.view.default, (n51, ANY))
n53 = Op(aten.bmm.default, (n52, n10))
n54 = Reshape(aten.view.default, (n53, ANY))
attention_divided_float_inference = (n54,)

n55 = Op(aten.add.Tensor, (n5, Var("mask"), 1))
n56 = Op(aten._to_copy.default, (n55, ANY, None, None, None, False, None))
n57 = Op(aten._softmax.default, (n56, Dim(-1), False))
n58 = Op(aten._to_copy.default, (n57, ANY, None, None, None, False, None))
n59 = Reshape(aten.view.default, (n58, ANY))
n60 = Op(aten.bmm.default, (n59, n10))
n61 = Reshape(aten.view.default, (n60, ANY))
attention_divided_float_mask_inference = (n61,)

n62 = Op(aten._to_copy.default, (n16, ANY, torch.strided, ANY, None, False, None))
n63 = Op(aten._softmax_backward_data.default, (n62, n57, Dim(-1), ANY))
n64 = Op(aten._to_copy.default, (n63, ANY, torch.strided, ANY, None, False, None))
n65 = Op(aten.div.Tensor, (n64, Var("scale")))
n66 = Reshape(aten.view.default, (n65, ANY))
n67 = Op(aten.bmm.default, (n66, n22))
n68 = Reshape(aten.view.default, (n67, ANY))
n69 = Op(aten.bmm.default, (n25, n66))
n70 = Reshape(aten.view.default, (n69, ANY))
n71 = Op(aten.transpose.int, (n70, Dim(-2), Dim(-1)))
n72 = Op(aten.transpose.int, (n59, Dim(-2), Dim(-1)))
n73 = Op(aten.bmm.default, (n72, n13))
n74 = Reshape(aten.view.default, (n73, ANY))
attention_divided_float_mask_training = (n61, n68, n71, n74)

n75 = Op(aten._softmax_backward_data.default, (n62, n50, Dim(-1), ANY))
n76 = Op(aten._to_copy.default, (n75, ANY, torch.strided, ANY, None, False, None))
n77 = Op(aten.div.Tensor, (n76, Var("scale")))
n78 = Reshape(aten.view.default, (n77, ANY))
n79 = Op(aten.bmm.default, (n78, n22))
n80 = Reshape(aten.view.default, (n79, ANY))
n81 = Op(aten.bmm.default, (n25, n78))
n82 = Reshape(aten.view.default, (n81, ANY))
n83 = Op(aten.transpose.int, (n82, Dim(-2), Dim(-1)))
n84 = Op(aten.transpose.int, (n52, Dim(-2), Dim(-1)))
n85 = Op(aten.bmm.default, (n84, n13))
n86 = Reshape(aten.view.default, (n85, ANY))
attention_divided_float_training = (n54, n80, n83, n86)

n87 = Reshape(aten.view.default, (n6, ANY))
n88 = Op(aten.bmm.default, (n87, n10))
n89 = Reshape(aten.view.default, (n88, ANY))
attention_divided_inference = (n89,)

n90 = Op(aten._softmax.default, (n55, Dim(-1), False))
n91 = Reshape(aten.view.default, (n90, ANY))
n92 = Op(aten.bmm.default, (n91, n10))
n93 = Reshape(aten.view.default, (n92, ANY))
attention_divided_mask_inference = (n93,)

n94 = Op(aten._softmax_backward_data.default, (n16, n90, Dim(-1), ANY))
n95 = Op(aten.div.Tensor, (n94, Var("scale")))
n96 = Reshape(aten.view.default, (n95, ANY))
n97 = Op(aten.bmm.default, (n96, n22))
n98 = Reshape(aten.view.default, (n97, ANY))
n99 = Op(aten.bmm.default, (n25, n96))
n100 = Reshape(aten.view.default, (n99, ANY))
n101 = Op(aten.transpose.int, (n100, Dim(-2), Dim(-1)))
n102 = Op(aten.transpose.int, (n91, Dim(-2), Dim(-1)))
n103 = Op(aten.bmm.default, (n102, n13))
n104 = Reshape(aten.view.default, (n103, ANY))
attention_divided_mask_training = (n93, n98, n101, n104)

n105 = Op(aten._softmax_backward_data.default, (n16, n6, Dim(-1), ANY))
n106 = Op(aten.div.Tensor, (n105, Var("scale")))
n107 = Reshape(aten.view.default, (n106, ANY))
n108 = Op(aten.bmm.default, (n107, n22))
n109 = Reshape(aten.view.default, (n108, ANY))
n110 = Op(aten.bmm.default, (n25, n107))
n111 = Reshape(aten.view.default, (n110, ANY))
n112 = Op(aten.transpose.int, (n111, Dim(-2), Dim(-1)))
n113 = Op(aten.transpose.int, (n87, Dim(-2), Dim(-1)))
n114 = Op(aten.bmm.default, (n113, n13))
n115 = Reshape(aten.view.default, (n114, ANY))
attention_divided_training = (n89, n109, n112, n115)

n116 = Op(aten.scalar_tensor.default, (float("-inf"), ANY, torch.strided, ANY, None))
n117 = Op(aten.where.self, (Var("mask"), n5, n116))
n118 = Op(aten._softmax.default, (n117, Dim(-1), False))
n119 = Reshape(aten.view.default, (n118, ANY))
n120 = Op(aten.bmm.default, (n119, n10))
n121 = Reshape(aten.view.default, (n120, ANY))
attention_divided_where_inference = (n121,)

n122 = Op(aten._softmax_backward_data.default, (n16, n118, Dim(-1), ANY))
n123 = Op(aten.scalar_tensor.default, (0, ANY, torch.strided, ANY, None))
n124 = Op(aten.where.self, (Var("mask"), n122, n123))
n125 = Op(aten.div.Tensor, (n124, Var("scale")))
n126 = Reshape(aten.view.default, (n125, ANY))
n127 = Op(aten.bmm.default, (n126, n22))
n128 = Reshape(aten.view.default, (n127, ANY))
n129 = Op(aten.bmm.default, (n25, n126))
n130 = Reshape(aten.view.default, (n129, ANY))
n131 = Op(aten.transpose.int, (n130, Dim(-2), Dim(-1)))
n132 = Op(aten.transpose.int, (n119, Dim(-2), Dim(-1)))
n133 = Op(aten.bmm.default, (n132, n13))
n134 = Reshape(aten.view.default, (n133, ANY))
attention_divided_where_training = (n121, n128, n131, n134)

n135 = Op(aten.masked_fill.Scalar, (n4, Var("mask"), float("-inf")))
n136 = Op(aten._softmax.default, (n135, Dim(-1), False))
n137 = Reshape(aten.view.default, (n136, ANY))
n138 = Op(aten.bmm.default, (n137, n10))
n139 = Reshape(aten.view.default, (n138, ANY))
attention_plain_fill_inference = (n139,)

n140 = Op(aten._softmax_backward_data.default, (n16, n136, Dim(-1), ANY))
n141 = Op(aten.masked_fill.Scalar, (n140, Var("mask"), 0))
n142 = Reshape(aten.view.default, (n141, ANY))
n143 = Op(aten.bmm.default, (n142, n22))
n144 = Reshape(aten.view.default, (n143, ANY))
n145 = Op(aten.bmm.default, (n25, n142))
n146 = Reshape(aten.view.default, (n145, ANY))
n147 = Op(aten.transpose.int, (n146, Dim(-2), Dim(-1)))
n148 = Op(aten.transpose.int, (n137, Dim(-2), Dim(-1)))
n149 = Op(aten.bmm.default, (n148, n13))
n150 = Reshape(aten.view.default, (n149, ANY))
attention_plain_fill_training = (n139, n144, n147, n150)

n151 = Op(aten._softmax.default, (n4, Dim(-1), False))
n152 = Reshape(aten.view.default, (n151, ANY))
n153 = Op(aten.bmm.default, (n152, n10))
n154 = Reshape(aten.view.default, (n153, ANY))
attention_plain_inference = (n154,)

n155 = Op(aten.add.Tensor, (n4, Var("mask"), 1))
n156 = Op(aten._softmax.default, (n155, Dim(-1), False))
n157 = Reshape(aten.view.default, (n156, ANY))
n158 = Op(aten.bmm.default, (n157, n10))
n159 = Reshape(aten.view.default, (n158, ANY))
attention_plain_mask_inference = (n159,)

n160 = Op(aten._softmax_backward_data.default, (n16, n156, Dim(-1), ANY))
n161 = Reshape(aten.view.default, (n160, ANY))
n162 = Op(aten.bmm.default, (n161, n22))
n163 = Reshape(aten.view.default, (n162, ANY))
n164 = Op(aten.bmm.default, (n25, n161))
n165 = Reshape(aten.view.default, (n164, ANY))
n166 = Op(aten.transpose.int, (n165, Dim(-2), Dim(-1)))
n167 = Op(aten.transpose.int, (n157, Dim(-2), Dim(-1)))
n168 = Op(aten.bmm.default, (n167, n13))
n169 = Reshape(aten.view.default, (n168, ANY))
attention_plain_mask_training = (n159, n163, n166, n169)

n170 = Op(aten._softmax_backward_data.default, (n16, n151, Dim(-1), ANY))
n171 = Reshape(aten.view.default, (n170, ANY))
n172 = Op(aten.bmm.default, (n171, n22))
n173 = Reshape(aten.view.default, (n172, ANY))
n174 = Op(aten.bmm.default, (n25, n171))
n175 = Reshape(aten.view.default, (n174, ANY))
n176 = Op(aten.transpose.int, (n175, Dim(-2), Dim(-1)))
n177 = Op(aten.transpose.int, (n152, Dim(-2), Dim(-1)))
n178 = Op(aten.bmm.default, (n177, n13))
n179 = Reshape(aten.view.default, (n178, ANY))
attention_plain_training = (n154, n173, n176, n179)

n180 = Op(aten.mul.Tensor, (Var("q"), Var("scale")))
n181 = Reshape(aten.view.default, (n180, ANY))
n182 = Op(aten.bmm.default, (n181, n2))
n183 = Reshape(aten.view.default, (n182, ANY))
n184 = Op(aten._softmax.default, (n183, Dim(-1), False))
n185 = Reshape(aten.view.default, (n184, ANY))
n186 = Op(aten.bmm.default, (n185, n10))
n187 = Reshape(aten.view.default, (n186, ANY))
attention_query_inference = (n187,)

n188 = Op(aten.add.Tensor, (n183, Var("mask"), 1))
n189 = Op(aten._softmax.default, (n188, Dim(-1), False))
n190 = Reshape(aten.view.default, (n189, ANY))
n191 = Op(aten.bmm.default, (n190, n10))
n192 = Reshape(aten.view.default, (n191, ANY))
attention_query_mask_inference = (n192,)

n193 = Op(aten._softmax_backward_data.default, (n16, n189, Dim(-1), ANY))
n194 = Reshape(aten.view.default, (n193, ANY))
n195 = Op(aten.bmm.default, (n194, n22))
n196 = Reshape(aten.view.default, (n195, ANY))
n197 = Op(aten.mul.Tensor, (n196, Var("scale")))
n198 = Op(aten.transpose.int, (n181, Dim(-2), Dim(-1)))
n199 = Op(aten.bmm.default, (n198, n194))
n200 = Reshape(aten.view.default, (n199, ANY))
n201 = Op(aten.transpose.int, (n200, Dim(-2), Dim(-1)))
n202 = Op(aten.transpose.int, (n190, Dim(-2), Dim(-1)))
n203 = Op(aten.bmm.default, (n202, n13))
n204 = Reshape(aten.view.default, (n203, ANY))
attention_query_mask_training = (n192, n197, n201, n204)

n205 = Op(aten._softmax_backward_data.default, (n16, n184, Dim(-1), ANY))
n206 = Reshape(aten.view.default, (n205, ANY))
n207 = Op(aten.bmm.default, (n206, n22))
n208 = Reshape(aten.view.default, (n207, ANY))
n209 = Op(aten.mul.Tensor, (n208, Var("scale")))
n210 = Op(aten.bmm.default, (n198, n206))
n211 = Reshape(aten.view.default, (n210, ANY))
n212 = Op(aten.transpose.int, (n211, Dim(-2), Dim(-1)))
n213 = Op(aten.transpose.int, (n185, Dim(-2), Dim(-1)))
n214 = Op(aten.bmm.default, (n213, n13))
n215 = Reshape(aten.view.default, (n214, ANY))
attention_query_training = (n187, n209, n212, n215)

attention_times_dropout_training = with_target(
    attention_divided_dropout_training, aten.div.Tensor, aten.mul.Tensor
)

attention_times_fill_inference = with_target(
    attention_divided_fill_inference, aten.div.Tensor, aten.mul.Tensor
)

attention_times_fill_training = with_target(
    attention_divided_fill_training, aten.div.Tensor, aten.mul.Tensor
)

attention_times_float_inference = with_target(
    attention_divided_float_inference, aten.div.Tensor, aten.mul.Tensor
)

attention_times_float_mask_inference = with_target(
    attention_divided_float_mask_inference, aten.div.Tensor, aten.mul.Tensor
)

attention_times_float_mask_training = with_target(
    attention_divided_float_mask_training, aten.div.Tensor, aten.mul.Tensor
)

attention_times_float_training = with_target(
    attention_divided_float_training, aten.div.Tensor, aten.mul.Tensor
)

attention_times_inference = with_target(
    attention_divided_inference, aten.div.Tensor, aten.mul.Tensor
)

attention_times_mask_inference = with_target(
    attention_divided_mask_inference, aten.div.Tensor, aten.mul.Tensor
)

attention_times_mask_training = with_target(
    attention_divided_mask_training, aten.div.Tensor, aten.mul.Tensor
)

attention_times_training = with_target(attention_divided_training, aten.div.Tensor, aten.mul.Tensor)

attention_times_where_inference = with_target(
    attention_divided_where_inference, aten.div.Tensor, aten.mul.Tensor
)

attention_times_where_training = with_target(
    attention_divided_where_training, aten.div.Tensor, aten.mul.Tensor
)
