"""Lower a functional graph to kernels of a loop IR and library calls, and fuse them."""
