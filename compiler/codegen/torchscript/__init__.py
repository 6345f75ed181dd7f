"""The `torchscript` code generator, and the rewrites that make a graph fit for it."""
