"""Tasks that store keys and values, and look up the value of a key."""
