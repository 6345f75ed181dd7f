# graph0: 30 calls, captured with torch 2.13.0+cpu by ctk 0.1.0; for reading, ctk loads graph.json
import torch


class Graph_true(torch.nn.Module):
    def __init__(self, constants):
        super().__init__()

    def forward(self, x0):
        sigmoid = torch.sigmoid(x0)
        tanh = torch.tanh(sigmoid)
        sigmoid_1 = torch.sigmoid(tanh)
        tanh_1 = torch.tanh(sigmoid_1)
        maximum = torch.maximum(tanh_1, x0)
        cos = torch.cos(maximum)
        cos_1 = torch.cos(cos)
        relu = torch.relu(cos_1)
        tanh_2 = torch.tanh(relu)
        cos_2 = torch.cos(tanh_2)
        sin = torch.sin(cos_2)
        tanh_3 = torch.tanh(sin)
        maximum_1 = torch.maximum(tanh_3, relu)
        return (maximum_1,)


class Graph_false(torch.nn.Module):
    def __init__(self, constants):
        super().__init__()

    def forward(self, x0):
        cos = torch.cos(x0)
        tanh = torch.tanh(cos)
        sin = torch.sin(tanh)
        sin_1 = torch.sin(sin)
        maximum = torch.maximum(sin_1, x0)
        tanh_1 = torch.tanh(maximum)
        sigmoid = torch.sigmoid(tanh_1)
        sin_2 = torch.sin(sigmoid)
        tanh_2 = torch.tanh(sin_2)
        return (tanh_2,)


class Graph(torch.nn.Module):
    def __init__(self, constants):
        super().__init__()
        self.true = Graph_true(constants)
        self.false = Graph_false(constants)

    def forward(self, p, x):
        sigmoid = torch.sigmoid(x)
        tanh = torch.tanh(sigmoid)
        cos = torch.cos(tanh)
        sigmoid_1 = torch.sigmoid(cos)
        mul = torch.mul(sigmoid_1, x)
        tanh_1 = torch.tanh(mul)
        sin = torch.sin(tanh_1)
        sin_1 = torch.sin(sin)
        sin_2 = torch.sin(sin_1)
        maximum = torch.maximum(sin_2, mul)
        sigmoid_2 = torch.sigmoid(maximum)
        sin_3 = torch.sin(sigmoid_2)
        sigmoid_3 = torch.sigmoid(sin_3)
        tanh_2 = torch.tanh(sigmoid_3)
        add = torch.add(tanh_2, maximum)
        tanh_3 = torch.tanh(add)
        true = self.true
        false = self.false
        cond = torch.ops.higher_order.cond(p, true, false, (tanh_3,))
        getitem = cond[0]
        sin_4 = torch.sin(getitem)
        cos_1 = torch.cos(sin_4)
        cos_2 = torch.cos(cos_1)
        cos_3 = torch.cos(cos_2)
        add_1 = torch.add(cos_3, getitem)
        sigmoid_4 = torch.sigmoid(add_1)
        sin_5 = torch.sin(sigmoid_4)
        sin_6 = torch.sin(sin_5)
        tanh_4 = torch.tanh(sin_6)
        maximum_1 = torch.maximum(tanh_4, add_1)
        sigmoid_5 = torch.sigmoid(maximum_1)
        sin_7 = torch.sin(sigmoid_5)
        return (sin_7,)
