"""What one observed compile did, step by step, and the check of each step."""
