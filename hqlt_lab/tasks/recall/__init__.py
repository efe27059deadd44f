"""Tasks that store pairs of tokens and ask for the second one."""
