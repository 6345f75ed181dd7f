"""Compare numbers: errors, tolerances, layouts, float64 references."""
