"""Rules as data, and a matcher over ATen graphs that applies them."""
