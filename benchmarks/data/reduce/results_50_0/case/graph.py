# graph0: 62 calls, captured with torch 2.13.0+cpu by ctk 0.1.0; for reading, ctk loads graph.json
import torch


class Graph(torch.nn.Module):
    def __init__(self, constants):
        super().__init__()

    def forward(self, x0):
        sigmoid = torch.sigmoid(x0)
        sigmoid_1 = torch.sigmoid(sigmoid)
        tanh = torch.tanh(sigmoid_1)
        sigmoid_2 = torch.sigmoid(tanh)
        mul = torch.mul(sigmoid_2, x0)
        cos = torch.cos(mul)
        cos_1 = torch.cos(cos)
        tanh_1 = torch.tanh(cos_1)
        cos_2 = torch.cos(tanh_1)
        add = torch.add(cos_2, mul)
        tanh_2 = torch.tanh(add)
        cos_3 = torch.cos(tanh_2)
        tanh_3 = torch.tanh(cos_3)
        sin = torch.sin(tanh_3)
        maximum = torch.maximum(sin, add)
        sin_1 = torch.sin(maximum)
        tanh_4 = torch.tanh(sin_1)
        sigmoid_3 = torch.sigmoid(tanh_4)
        topk = torch.topk(sigmoid_3, 4, -1)
        getitem = topk[0]
        getitem_1 = topk[1]
        cat = torch.cat([getitem, getitem], -1)
        cat_1 = torch.cat([getitem_1, getitem_1], -1)
        gather = torch.gather(cat, -1, cat_1)
        sin_2 = torch.sin(gather)
        topk_1 = torch.topk(sin_2, 4, -1)
        getitem_2 = topk_1[0]
        getitem_3 = topk_1[1]
        cat_2 = torch.cat([getitem_2, getitem_2], -1)
        cat_3 = torch.cat([getitem_3, getitem_3], -1)
        gather_1 = torch.gather(cat_2, -1, cat_3)
        tanh_5 = torch.tanh(gather_1)
        topk_2 = torch.topk(tanh_5, 4, -1)
        getitem_4 = topk_2[0]
        getitem_5 = topk_2[1]
        cat_4 = torch.cat([getitem_4, getitem_4], -1)
        cat_5 = torch.cat([getitem_5, getitem_5], -1)
        gather_2 = torch.gather(cat_4, -1, cat_5)
        sigmoid_4 = torch.sigmoid(gather_2)
        tanh_6 = torch.tanh(sigmoid_4)
        cos_4 = torch.cos(tanh_6)
        sigmoid_5 = torch.sigmoid(cos_4)
        sigmoid_6 = torch.sigmoid(sigmoid_5)
        maximum_1 = torch.maximum(sigmoid_6, sigmoid_4)
        tanh_7 = torch.tanh(maximum_1)
        split = torch.split(tanh_7, 4, dim=-1)
        getitem_6 = split[0]
        getitem_7 = split[1]
        gelu = torch.nn.functional.gelu(getitem_7)
        add_1 = torch.add(getitem_6, gelu)
        sin_3 = torch.sin(add_1)
        sin_4 = torch.sin(sin_3)
        sin_5 = torch.sin(sin_4)
        sigmoid_7 = torch.sigmoid(sin_5)
        maximum_2 = torch.maximum(sigmoid_7, add_1)
        sin_6 = torch.sin(maximum_2)
        sigmoid_8 = torch.sigmoid(sin_6)
        tanh_8 = torch.tanh(sigmoid_8)
        cos_5 = torch.cos(tanh_8)
        maximum_3 = torch.maximum(cos_5, maximum_2)
        topk_3 = torch.topk(getitem_6, 2)
        getitem_8 = topk_3[0]
        return (maximum_3, getitem_8)
