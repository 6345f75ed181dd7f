"""Files on disk: checked JSON, atomic folders, tensors; knows no graph."""
