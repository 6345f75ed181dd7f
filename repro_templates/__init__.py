"""What emitted scripts carry, and the toolkit judges by: torch only."""
