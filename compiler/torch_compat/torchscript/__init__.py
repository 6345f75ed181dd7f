"""TorchScript: private names of `torch.jit`, and its passes."""
