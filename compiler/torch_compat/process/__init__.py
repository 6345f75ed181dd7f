"""State of torch in a process: allocators, modes, settings, C functions."""
