"""Autograd and decompositions: from a captured graph to functional ATen graphs."""
