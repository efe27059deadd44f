"""Tasks and environments that models are trained on: one file per registered task, shared code in `_*.py`."""
