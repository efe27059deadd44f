"""How a token changes the fast weights."""
