"""Tasks that repeat symbols of their input."""
