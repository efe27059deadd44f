"""Tasks that repeat parts of their input."""
