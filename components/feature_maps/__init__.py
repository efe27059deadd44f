"""What the fast weights see of a query or a key."""
