"""FX graphs, operators, schemas and tracing in torch."""
