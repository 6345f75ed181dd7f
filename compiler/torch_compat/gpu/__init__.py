"""GPUs in torch and Triton: capture, load, launch, interpret."""
