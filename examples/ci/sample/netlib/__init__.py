"""A small library of models, with compiler passes and backends of its own; some have bugs."""
