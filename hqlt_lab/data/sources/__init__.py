"""Text sources: local files, the Python standard library, and Hugging Face datasets."""
