"""The MLflow server behind `hqlt ui`, and its network settings."""
