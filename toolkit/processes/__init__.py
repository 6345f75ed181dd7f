"""Child processes: start, supervise, find and end them."""
