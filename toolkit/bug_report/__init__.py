"""The failure of a diagnosis as an issue for PyTorch."""
