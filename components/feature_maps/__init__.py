"""Feature maps: applied to queries and keys before the fast weights."""
