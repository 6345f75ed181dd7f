"""Files on disk: JSON that is checked, atomic folders, tensors. Knows no graph."""
