"""Record one observed compile step by step, and check each step against eager."""
