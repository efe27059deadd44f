"""Record of every attempt at every cell, kept by Optuna in a journal file or in PostgreSQL."""
