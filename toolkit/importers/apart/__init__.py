"""Programs whose eager call may break CUDA, captured in a process of their own."""
