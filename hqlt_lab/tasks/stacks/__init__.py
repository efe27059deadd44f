"""Tasks that need a stack or a tape: brackets, and strings that are written behind their input."""
