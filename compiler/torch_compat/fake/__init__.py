"""Fake tensors, symbolic sizes and shape guards in torch."""
