"""Child processes: start, supervise, find and end them, and what they leave behind."""
