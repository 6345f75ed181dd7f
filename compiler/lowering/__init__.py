"""A functional graph as kernels of a loop IR and calls of the library: lowered, fused."""
