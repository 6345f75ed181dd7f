"""Rules and passes tried by a machine: drawn graphs before and after, what differs."""
