"""When a token enters which memory, and for how long."""
