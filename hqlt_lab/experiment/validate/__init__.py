"""Validate an experiment: size limits, metric names, and the model and task of every cell."""
