"""Update rules: how a token updates the fast weights."""
