"""The search for the release of torch or Triton that broke, or repaired, one script."""
