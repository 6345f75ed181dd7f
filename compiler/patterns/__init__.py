"""A matcher over ATen graphs, and rules by family."""
