"""MLflow as a mirror of what the cells' folders hold: runs, curves, artifacts, provenance."""
