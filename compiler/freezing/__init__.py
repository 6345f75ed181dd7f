"""The parameters of an inference graph as constants, and their originals."""
