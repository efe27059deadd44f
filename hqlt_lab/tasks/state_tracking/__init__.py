"""Tasks that follow a state which every token may change, alone and together with recall."""
