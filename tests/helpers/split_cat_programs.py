"""Programs of splits and concatenations, and the pass of Inductor that fires on each."""

import torch


def inputs(dtype=torch.float32):
    return [(torch.arange(24.0).view(4, 6) - 9).to(dtype), torch.ones(4, 2, dtype=dtype)]


def split_cat_other(x, y):
    return torch.cat([y, *x.split(2, 1)], 1) * 2


def split_cat_part(x, y):
    a, b, c = x.split(2, 1)
    return torch.cat([a, b, y], 1) * 2, c + 1


def split_cat_shuffled(x, y):
    a, b, c = x.split(2, 1)
    return torch.cat([c, a, b, y], 1) * 2


def split_cat_other_dimension(x, y):
    return torch.cat(x.split(2, 1), 0) * 2


def split_stack(x, y):
    return torch.stack(x.split(2, 1), 2) * 2


def unbind_cat(x, y):
    return torch.cat([y[0], *x.unbind(1)]) * 2


def unbind_stack(x, y):
    return torch.stack([y[:, 0], *x.unbind(1)], 1) * 2


def unbind_stack_moved(x, y):
    return torch.stack(x.view(2, 2, 6).unbind(1), 2) * 2


def getitem_cat(x, y):
    a, b, c = x.split(2, 1)
    return torch.cat([a, b], 1).sin(), c.cos()


def cat_mutated(x, y):
    a, b, c = x.split(2, 1)
    return torch.cat([a, b], 1).sin(), b.cos() + c


def split_to_slices(x, y):
    a, b, c = x.split(2, 1)
    return torch.cat([y, a, b], 1) * 2, torch.cat([b, c], 1).sin(), c.cos()


def unbind_to_view(x, y):
    a, b, c, *_ = x.view(4, 3, 2).unbind(1)
    return torch.cat([y, b, c], 1) * 2, a + 1


def stack_to_cats(x, y):
    return torch.stack([*x.split(2, 1), *y.split(2, 1)], 1) * 2


def unbind_to_slices(x, y):
    a, b, c, d, e, f = x.view(2, 6, 2).unbind(1)
    return torch.stack([a, b, c], 1) * 2, torch.stack([d, e, f], 1).sin()


def reshape_out_of_stack(x, y):
    return torch.stack([torch.reshape(a, (2, 2, 2)) for a in x.split(2, 1)], 0) * 2


def split_cat_aten(x, y):
    a, b, _ = x.split([1, 2, 3], 1)
    return torch.cat([y, a, b], 1) * 2


def select_cat(x, y):
    return torch.cat([x.select(0, i) for i in range(4)], 0) * 2


PROGRAMS = [
    (split_cat_other, "split_cat_pass"),
    (split_cat_part, "split_cat_pass"),
    (split_cat_shuffled, "split_cat_pass"),
    (split_cat_other_dimension, "split_cat_pass"),
    (split_stack, "split_cat_pass"),
    (unbind_cat, "unbind_stack_pass"),
    (unbind_stack, "unbind_stack_pass"),
    (unbind_stack_moved, "unbind_stack_pass"),
    (getitem_cat, "merge_getitem_cat_pass"),
    (cat_mutated, "mutate_cat_pass"),
    (split_to_slices, "split_cat_to_slices_pass"),
    (unbind_to_view, "unbind_cat_to_view_pass"),
    (stack_to_cats, "split_stack_to_cats_pass"),
    (unbind_to_slices, "unbind_stack_to_slices_pass"),
    (reshape_out_of_stack, "move_reshape_out_of_split_stack_pass"),
    (split_cat_aten, "split_cat_aten_pass"),
    (select_cat, "select_cat_aten_pass"),
]
