"""Read experiment files: safe YAML parsing, `extends`, `--set`, interpolation, and line numbers for error messages."""
