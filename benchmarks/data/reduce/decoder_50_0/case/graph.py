# graph0: 56 calls, captured with torch 2.13.0+cpu by ctk 0.1.0; for reading, ctk loads graph.json
import torch


class Graph(torch.nn.Module):
    def __init__(self, constants):
        super().__init__()

    def forward(self, l_self_modules_embedding_parameters_weight_, l_ids_, l_at_, l_self_modules_qkv_modules_0_parameters_weight_, l_self_modules_qkv_modules_0_parameters_bias_, l_keys_, l_values_, l_self_modules_mlp_modules_0_parameters_weight_, l_self_modules_mlp_modules_0_parameters_bias_, l_self_modules_qkv_modules_1_parameters_weight_, l_self_modules_qkv_modules_1_parameters_bias_, l_self_modules_mlp_modules_1_parameters_weight_, l_self_modules_mlp_modules_1_parameters_bias_, l_self_modules_head_parameters_weight_, l_self_modules_head_parameters_bias_):
        embedding = torch.nn.functional.embedding(l_ids_, l_self_modules_embedding_parameters_weight_, None, None, 2.0, False, False)  # float32[2, 1, 16]
        x = torch.nn.functional.softplus(embedding)  # float32[2, 1, 16]
        cos = l_at_.cos()  # float32[2, 1, 8]
        sin = l_at_.sin()  # float32[2, 1, 8]
        turn = torch.cat([cos, sin], -1)  # float32[2, 1, 16]
        linear = torch.nn.functional.linear(x, l_self_modules_qkv_modules_0_parameters_weight_, l_self_modules_qkv_modules_0_parameters_bias_)  # float32[2, 1, 48]
        chunk = linear.chunk(3, dim=-1)  # (float32[2, 1, 16], float32[2, 1, 16], float32[2, 1, 16])
        q = chunk[0]  # float32[2, 1, 16]
        k = chunk[1]  # float32[2, 1, 16]
        v = chunk[2]  # float32[2, 1, 16]
        mul = q * turn  # float32[2, 1, 16]
        chunk_1 = q.chunk(2, -1)  # (float32[2, 1, 8], float32[2, 1, 8])
        getitem_3 = chunk_1[0]  # float32[2, 1, 8]
        getitem_4 = chunk_1[1]  # float32[2, 1, 8]
        cat_1 = torch.cat((getitem_4, getitem_3), -1)  # float32[2, 1, 16]
        q_1 = mul + cat_1  # float32[2, 1, 16]
        mul_1 = k * turn  # float32[2, 1, 16]
        chunk_2 = k.chunk(2, -1)  # (float32[2, 1, 8], float32[2, 1, 8])
        getitem_5 = chunk_2[0]  # float32[2, 1, 8]
        getitem_6 = chunk_2[1]  # float32[2, 1, 8]
        cat_2 = torch.cat((getitem_6, getitem_5), -1)  # float32[2, 1, 16]
        k_1 = mul_1 + cat_2  # float32[2, 1, 16]
        keys = torch.cat([l_keys_, k_1], 1)  # float32[2, 6, 16]
        values = torch.cat([l_values_, v], 1)  # float32[2, 6, 16]
        scaled_dot_product_attention = torch.nn.functional.scaled_dot_product_attention(q_1, keys, values)  # float32[2, 1, 16]
        x_1 = x + scaled_dot_product_attention  # float32[2, 1, 16]
        linear_1 = torch.nn.functional.linear(x_1, l_self_modules_mlp_modules_0_parameters_weight_, l_self_modules_mlp_modules_0_parameters_bias_)  # float32[2, 1, 16]
        silu = torch.nn.functional.silu(linear_1)  # float32[2, 1, 16]
        x_2 = x_1 + silu  # float32[2, 1, 16]
        linear_2 = torch.nn.functional.linear(x_2, l_self_modules_qkv_modules_1_parameters_weight_, l_self_modules_qkv_modules_1_parameters_bias_)  # float32[2, 1, 48]
        chunk_3 = linear_2.chunk(3, dim=-1)  # (float32[2, 1, 16], float32[2, 1, 16], float32[2, 1, 16])
        q_2 = chunk_3[0]  # float32[2, 1, 16]
        k_2 = chunk_3[1]  # float32[2, 1, 16]
        v_1 = chunk_3[2]  # float32[2, 1, 16]
        mul_2 = q_2 * turn  # float32[2, 1, 16]
        chunk_4 = q_2.chunk(2, -1)  # (float32[2, 1, 8], float32[2, 1, 8])
        getitem_10 = chunk_4[0]  # float32[2, 1, 8]
        getitem_11 = chunk_4[1]  # float32[2, 1, 8]
        cat_5 = torch.cat((getitem_11, getitem_10), -1)  # float32[2, 1, 16]
        q_3 = mul_2 + cat_5  # float32[2, 1, 16]
        mul_3 = k_2 * turn  # float32[2, 1, 16]
        chunk_5 = k_2.chunk(2, -1)  # (float32[2, 1, 8], float32[2, 1, 8])
        getitem_12 = chunk_5[0]  # float32[2, 1, 8]
        getitem_13 = chunk_5[1]  # float32[2, 1, 8]
        cat_6 = torch.cat((getitem_13, getitem_12), -1)  # float32[2, 1, 16]
        k_3 = mul_3 + cat_6  # float32[2, 1, 16]
        keys_1 = torch.cat([keys, k_3], 1)  # float32[2, 7, 16]
        values_1 = torch.cat([values, v_1], 1)  # float32[2, 7, 16]
        scaled_dot_product_attention_1 = torch.nn.functional.scaled_dot_product_attention(q_3, keys_1, values_1)  # float32[2, 1, 16]
        x_3 = x_2 + scaled_dot_product_attention_1  # float32[2, 1, 16]
        linear_3 = torch.nn.functional.linear(x_3, l_self_modules_mlp_modules_1_parameters_weight_, l_self_modules_mlp_modules_1_parameters_bias_)  # float32[2, 1, 16]
        silu_1 = torch.nn.functional.silu(linear_3)  # float32[2, 1, 16]
        x_4 = x_3 + silu_1  # float32[2, 1, 16]
        hardtanh = torch.nn.functional.hardtanh(x_4)  # float32[2, 1, 16]
        getitem_14 = hardtanh[:, -1]  # float32[2, 16]
        linear_4 = torch.nn.functional.linear(getitem_14, l_self_modules_head_parameters_weight_, l_self_modules_head_parameters_bias_)  # float32[2, 50]
        return (linear_4,)
