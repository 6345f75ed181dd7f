"""Functions and files that users name: resolve, import and run them."""
