"""Integer algebra of index expressions and symbolic sizes."""
