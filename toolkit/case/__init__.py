"""Cases: one failure as a value and as a folder."""
